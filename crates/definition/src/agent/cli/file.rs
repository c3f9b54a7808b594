//! Agents that are command-line programs: the file and its rules.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::name::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::args::CliArgs;
use super::check;
use super::glob::PathGlob;
use super::parser::OutputParser;
use super::preset::CliPreset;
use super::template::{CliPlaceholder, CliTemplate};
use super::{
    AccessType, AgentMode, AgentType, CliAgent, EmptyOutputPolicy, ErrorRule, InputPattern,
    OutputPattern, PermissionPolicy, QueueFullPolicy, ResourceLimits, StopSignal, WorkspaceMode,
};
use crate::agent::a2a::A2aEndpointFile;
use crate::file::checker::FileChecker;
use crate::file::ordered::OrderedMap;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::{EnvName, Text};
use crate::{nonzero_u32, nonzero_u64};

const TIMEOUT_DEFAULT: NonZeroU64 = nonzero_u64(300);
const MAX_RETRIES_DEFAULT: u32 = 3;
const QUEUE_LIMIT_DEFAULT: u32 = 10;
const QUEUE_TIMEOUT_SECONDS_DEFAULT: NonZeroU64 = nonzero_u64(1800);
const GRACE_SECONDS_DEFAULT: u64 = 10;
const SUCCESS_EXIT_CODE: i32 = 0;
const SIDE_BY_SIDE_DEFAULT: NonZeroU32 = nonzero_u32(10);
const IN_ONE_FOLDER_MAX: NonZeroU32 = nonzero_u32(1);

/// A command-line program.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CliAgentFile {
    /// The agent's name; the same as the name of its file.
    #[schemars(required)]
    pub(crate) name: Option<Name>,
    /// The agent's role in a few words, for people and other agents.
    role: Option<Text>,
    /// A preset that fills in unset fields.
    preset: Option<CliPreset>,
    /// The form of input and output in one word; sets `input_pattern` and `output_pattern`.
    agent_type: Option<AgentType>,
    /// The program to run: a path, or a name to look up in PATH. Needed without a preset.
    executable_path: Option<Text>,
    /// Command-line arguments: a list, or a mapping of option to value in the order written. An
    /// option with the value `true` or without one is a flag. Each run fills in the placeholders
    /// `{{prompt}}` (or `{{input}}`), `{{workdir}}`, `{{input_file}}`, `{{output_file}}`,
    /// `{{model}}`, `{{session_id}}` and `{{param.NAME}}`; write `{{{{` for `{{`. No shell is
    /// involved. An argument with `{{model}}` or `{{session_id}}` is omitted if there is none,
    /// together with the option before it if it holds nothing else. The input or the path of its
    /// file comes last if no argument names it. Secrets belong in `envs`: arguments are public.
    cli_args: Option<CliArgs>,
    /// The value of `{{model}}`, unless a task has a parameter `model`.
    model: Option<Text>,
    /// Environment variables to set. A value may name another variable as `${NAME}`; write secrets
    /// only so.
    #[schemars(with = "Option<OrderedMap<EnvName, String>>")]
    envs: Option<BTreeMap<EnvName, String>>,
    /// The variables to pass on from Polity's own environment.
    #[schemars(extend("default" = []))]
    env_allow: Option<Vec<EnvName>>,
    /// The variables that are never passed on.
    #[schemars(extend("default" = []))]
    env_unset: Option<Vec<EnvName>>,
    /// The working directory; default Polity's own.
    working_directory: Option<Text>,
    /// One run for each task, or one conversation.
    #[schemars(extend("default" = AgentMode::Task))]
    mode: Option<AgentMode>,
    /// The form of the input. The default follows from the placeholders in `cli_args`; without any
    /// it is `stdin`.
    input_pattern: Option<InputPattern>,
    /// The form of the output; default `stdout`, or `file` if `cli_args` name `{{output_file}}`.
    output_pattern: Option<OutputPattern>,
    /// The content of the input file, for the input pattern `file`; default the input. It may use
    /// the placeholders of `cli_args`. The file is private to the run.
    input_file_template: Option<CliTemplate>,
    /// The path of the output file, for the output pattern `file`, relative to the working
    /// directory; default a file private to the run. It may use `{{workdir}}`, `{{model}}` and
    /// `{{param.NAME}}`.
    output_file_template: Option<CliTemplate>,
    /// The output parser; default plain text.
    parser: Option<OutputParser>,
    /// The access to files. Only one read-write run happens at a time in a folder.
    #[schemars(extend("default" = AccessType::ReadWrite))]
    access_type: Option<AccessType>,
    /// The concurrency limit: default 10 for read-only, and for read-write with a workspace of its
    /// own; always 1 for read-write in the shared folder.
    max_concurrent_executions: Option<NonZeroU32>,
    /// The time limit of one run, in seconds.
    #[schemars(extend("default" = TIMEOUT_DEFAULT))]
    timeout: Option<NonZeroU64>,
    /// The time limit of the start, in seconds.
    start_timeout: Option<NonZeroU64>,
    /// The time limit without output, in seconds.
    idle_timeout: Option<NonZeroU64>,
    /// The time limit of a conversation, in seconds; for the mode `interactive`.
    session_timeout: Option<NonZeroU64>,
    /// Keeps the process alive between the messages of a conversation; for the mode `interactive`.
    #[schemars(extend("default" = false))]
    keep_alive: Option<bool>,
    /// True if the agent accepts tasks.
    #[schemars(extend("default" = true))]
    enabled: Option<bool>,
    /// The retry limit after transient failures.
    #[schemars(extend("default" = MAX_RETRIES_DEFAULT))]
    max_retries: Option<u32>,
    /// The answer to permission requests of the CLI agent.
    #[schemars(extend("default" = PermissionPolicy::Ask))]
    permission_policy: Option<PermissionPolicy>,
    /// Runs that share a key never run at once, even of different agents.
    lock_key: Option<Text>,
    /// The files of a run: the working directory itself, its own Git worktree, or its own copy.
    #[schemars(extend("default" = WorkspaceMode::Shared))]
    workspace: Option<WorkspaceMode>,
    /// True if a run is safe to repeat.
    #[schemars(extend("default" = false))]
    idempotent: Option<bool>,
    /// True if the node that runs the agent declares `idempotent: false`. Only tasks pin it.
    #[schemars(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    never_repeat: Option<bool>,
    /// The deduplication window in seconds: duplicates within it share one result.
    deduplicate_seconds: Option<NonZeroU64>,
    /// The reaction to a full queue: `wait`, as long as it takes, or `refuse` the task. Default
    /// `wait`, or `refuse` if `queue_limit` is set.
    queue_full: Option<QueueFullPolicy>,
    /// The most runs that may wait for a slot, with `queue_full: refuse`; 0 for none, default 10.
    queue_limit: Option<u32>,
    /// The time limit of waiting for a slot, in seconds; default 1800 with `queue_full: refuse`, and
    /// none with `wait`.
    queue_timeout_seconds: Option<NonZeroU64>,
    /// The time between the stop signal and SIGKILL, in seconds.
    #[schemars(extend("default" = GRACE_SECONDS_DEFAULT))]
    grace_seconds: Option<u64>,
    /// The signal that stops the process.
    #[schemars(extend("default" = StopSignal::Term))]
    stop_signal: Option<StopSignal>,
    /// The exit codes of a run that went well.
    #[schemars(extend("default" = [SUCCESS_EXIT_CODE]))]
    success_exit_codes: Option<Vec<i32>>,
    /// The reaction to a run that went well and printed nothing: it fails, or its answer is the
    /// empty text.
    #[schemars(extend("default" = EmptyOutputPolicy::Fail))]
    empty_output: Option<EmptyOutputPolicy>,
    /// The rules that classify failures by their messages; the first match wins.
    #[schemars(extend("default" = []))]
    error_rules: Option<Vec<ErrorRule>>,
    /// The resource limits of one run.
    resource_limits: Option<ResourceLimits>,
    /// The artifacts to save from the working directory, as glob patterns: `*` matches any part of
    /// a name, `?` one character, `**` any number of folders.
    #[schemars(extend("default" = []))]
    artifacts: Option<Vec<PathGlob>>,
    /// The agent's A2A endpoint.
    pub(crate) a2a: Option<A2aEndpointFile>,
}

impl CliAgentFile {
    pub(crate) fn check(self, checker: &mut FileChecker) -> CliAgent {
        let root = FieldPath::root();
        if self.preset.is_none() && !checker.is_there(&root.field("preset")) {
            let path = root.field("executable_path");
            checker.require_when(&path, self.executable_path.as_ref(), "without a preset");
        }
        let (input_pattern, output_pattern) = self.check_patterns(checker);
        let input_file = input_pattern == Some(InputPattern::File);
        let output_file = output_pattern == Some(OutputPattern::File);
        let preset = self.preset.is_some();
        checker.refuse_unless(
            input_file || (preset && input_pattern.is_none()),
            &root.field("input_file_template"),
            "with the input pattern file",
        );
        checker.refuse_unless(
            output_file || (preset && output_pattern.is_none()),
            &root.field("output_file_template"),
            "with the output pattern file",
        );
        let is_pinned = checker.is_pinned_definition();
        let only = "in a task; set idempotent: false on the step instead";
        checker.refuse_unless(is_pinned, &root.field("never_repeat"), only);
        let queue_limit = self.check_queue(checker);
        let mode = self.mode.unwrap_or_default();
        let access_type = self.access_type.unwrap_or_default();
        let max_concurrent_executions = self.check_concurrency(access_type, checker);
        let cli_args = self.cli_args.map(|args| args.0);
        let agent = CliAgent {
            role: self.role,
            preset: self.preset,
            executable_path: self.executable_path,
            cli_args: if preset { cli_args } else { Some(cli_args.unwrap_or_default()) },
            model: self.model,
            envs: self.envs.unwrap_or_default(),
            env_allow: self.env_allow.unwrap_or_default(),
            env_unset: self.env_unset.unwrap_or_default(),
            working_directory: self.working_directory,
            agent_type: self.agent_type,
            input_pattern,
            output_pattern,
            input_file_template: self.input_file_template,
            output_file_template: self.output_file_template,
            parser: self.parser,
            mode,
            access_type,
            max_concurrent_executions,
            timeout_seconds: self.timeout.unwrap_or(TIMEOUT_DEFAULT),
            start_timeout_seconds: self.start_timeout,
            idle_timeout_seconds: self.idle_timeout,
            session_timeout_seconds: self.session_timeout,
            keep_alive: self.keep_alive.unwrap_or(false),
            enabled: self.enabled.unwrap_or(true),
            max_retries: self.max_retries.unwrap_or(MAX_RETRIES_DEFAULT),
            permission_policy: self.permission_policy.unwrap_or_default(),
            lock_key: self.lock_key,
            workspace: self.workspace.unwrap_or_default(),
            idempotent: self.idempotent.unwrap_or(false),
            never_repeat: self.never_repeat.unwrap_or(false),
            deduplicate_seconds: self.deduplicate_seconds,
            queue_limit,
            queue_timeout_seconds: self
                .queue_timeout_seconds
                .or_else(|| queue_limit.map(|_| QUEUE_TIMEOUT_SECONDS_DEFAULT)),
            grace_seconds: self.grace_seconds.unwrap_or(GRACE_SECONDS_DEFAULT),
            stop_signal: self.stop_signal.unwrap_or_default(),
            success_exit_codes: self.success_exit_codes.unwrap_or_else(|| vec![SUCCESS_EXIT_CODE]),
            empty_output: self.empty_output.unwrap_or_default(),
            error_rules: self.error_rules.unwrap_or_default(),
            resource_limits: self.resource_limits.unwrap_or_default(),
            artifacts: self.artifacts.unwrap_or_default(),
            script: None,
        };
        check::check(&agent, checker);
        agent
    }

    /// Settles the length limit of the queue; none if a full queue waits.
    fn check_queue(&self, checker: &mut FileChecker) -> Option<u32> {
        match (self.queue_full, self.queue_limit) {
            (Some(QueueFullPolicy::Refuse), limit) => Some(limit.unwrap_or(QUEUE_LIMIT_DEFAULT)),
            (None, limit) => limit,
            (Some(QueueFullPolicy::Wait), None) => None,
            (Some(QueueFullPolicy::Wait), Some(_)) => {
                let path = FieldPath::root().field("queue_limit");
                checker.refuse_unless(false, &path, "with queue_full: refuse");
                None
            }
        }
    }

    /// Settles input and output from `agent_type` and the patterns, which must not contradict.
    fn check_patterns(
        &self,
        checker: &mut FileChecker,
    ) -> (Option<InputPattern>, Option<OutputPattern>) {
        let (input_path, output_path) =
            (FieldPath::root().field("input_pattern"), FieldPath::root().field("output_pattern"));
        let (input_meant, output_meant) = match self.agent_type {
            Some(AgentType::StdinStdout) => {
                (Some(InputPattern::Stdin), Some(OutputPattern::Stdout))
            }
            Some(AgentType::FileInput) => (Some(InputPattern::File), None),
            Some(AgentType::JsonRpc) => (Some(InputPattern::JsonRpc), Some(OutputPattern::JsonRpc)),
            // Both directions of JSON-RPC belong together, so one implies the other.
            None => (
                (self.output_pattern == Some(OutputPattern::JsonRpc))
                    .then_some(InputPattern::JsonRpc),
                (self.input_pattern == Some(InputPattern::JsonRpc))
                    .then_some(OutputPattern::JsonRpc),
            ),
        };
        if let (Some(written), Some(meant)) = (self.input_pattern, input_meant)
            && written != meant
        {
            checker.report(&input_path, conflict("input_pattern", &written, &meant));
        }
        if let (Some(written), Some(meant)) = (self.output_pattern, output_meant)
            && written != meant
        {
            checker.report(&output_path, conflict("output_pattern", &written, &meant));
        }
        if self.agent_type == Some(AgentType::FileInput)
            && self.output_pattern == Some(OutputPattern::JsonRpc)
        {
            let message = "\"output_pattern\" is json-rpc, but the agent_type file-input allows only \
                           stdout and file";
            checker.report(&output_path, FindingText::new(message).allowed("stdout, file"));
        }
        // The preset decides the patterns that the file leaves open.
        let open = self.preset.is_some() && self.agent_type.is_none();
        let (input_named, output_named) = self.patterns_named();
        let input = self.input_pattern.or(input_meant).or(input_named);
        let output = self.output_pattern.or(output_meant).or(output_named);
        if open {
            (input, output)
        } else {
            (input.or(Some(InputPattern::Stdin)), output.or(Some(OutputPattern::Stdout)))
        }
    }

    /// The patterns that follow from the placeholders in the arguments.
    fn patterns_named(&self) -> (Option<InputPattern>, Option<OutputPattern>) {
        let args = self.cli_args.as_ref().map_or(&[][..], |args| &args.0);
        let names = |placeholder| args.iter().any(|arg| arg.names(&placeholder));
        let by_args = names(CliPlaceholder::Input).then_some(InputPattern::Args);
        let by_file = names(CliPlaceholder::InputFile).then_some(InputPattern::File);
        let output = names(CliPlaceholder::OutputFile).then_some(OutputPattern::File);
        (by_file.or(by_args), output)
    }

    fn check_concurrency(&self, access_type: AccessType, checker: &mut FileChecker) -> NonZeroU32 {
        let shares_folder = match self.workspace.unwrap_or_default() {
            WorkspaceMode::Shared => true,
            WorkspaceMode::Worktree | WorkspaceMode::Copy => false,
        };
        let is_alone = shares_folder && access_type == AccessType::ReadWrite;
        match (is_alone, self.max_concurrent_executions) {
            (false, None) => SIDE_BY_SIDE_DEFAULT,
            (false, Some(wanted)) => wanted,
            (true, None) => IN_ONE_FOLDER_MAX,
            (true, Some(wanted)) => {
                if wanted > IN_ONE_FOLDER_MAX {
                    let message = format!(
                        "max_concurrent_executions is {wanted}, but only one read-write run may \
                         happen at a time in a folder; set access_type to read-only if the program \
                         changes nothing, or workspace to copy or worktree"
                    );
                    checker.report(
                        &FieldPath::root().field("max_concurrent_executions"),
                        FindingText::new(message).found(wanted.to_string()).allowed("1"),
                    );
                }
                IN_ONE_FOLDER_MAX
            }
        }
    }
}

fn conflict<T: Serialize>(field: &str, written: &T, meant: &T) -> FindingText {
    let word = |pattern: &T| {
        let value = serde_json::to_value(pattern).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    };
    let (written, meant) = (word(written), word(meant));
    FindingText::new(format!("\"{field}\" is {written}, but the rest of the file asks for {meant}"))
        .found(written)
        .allowed(meant)
}

impl CliAgent {
    pub(crate) fn to_file(&self, name: Option<Name>, a2a: Option<A2aEndpointFile>) -> CliAgentFile {
        CliAgentFile {
            name,
            role: self.role.clone(),
            preset: self.preset,
            agent_type: self.agent_type,
            executable_path: self.executable_path.clone(),
            cli_args: self.cli_args.clone().map(CliArgs),
            model: self.model.clone(),
            envs: Some(self.envs.clone()),
            env_allow: Some(self.env_allow.clone()),
            env_unset: Some(self.env_unset.clone()),
            working_directory: self.working_directory.clone(),
            mode: Some(self.mode),
            input_pattern: self.input_pattern,
            output_pattern: self.output_pattern,
            input_file_template: self.input_file_template.clone(),
            output_file_template: self.output_file_template.clone(),
            parser: self.parser.clone(),
            access_type: Some(self.access_type),
            max_concurrent_executions: Some(self.max_concurrent_executions),
            timeout: Some(self.timeout_seconds),
            start_timeout: self.start_timeout_seconds,
            idle_timeout: self.idle_timeout_seconds,
            session_timeout: self.session_timeout_seconds,
            keep_alive: Some(self.keep_alive),
            enabled: Some(self.enabled),
            max_retries: Some(self.max_retries),
            permission_policy: Some(self.permission_policy),
            lock_key: self.lock_key.clone(),
            workspace: Some(self.workspace),
            idempotent: Some(self.idempotent),
            never_repeat: self.never_repeat.then_some(true),
            deduplicate_seconds: self.deduplicate_seconds,
            queue_full: Some(self.queue_full()),
            queue_limit: self.queue_limit,
            queue_timeout_seconds: self.queue_timeout_seconds,
            grace_seconds: Some(self.grace_seconds),
            stop_signal: Some(self.stop_signal),
            success_exit_codes: Some(self.success_exit_codes.clone()),
            empty_output: Some(self.empty_output),
            error_rules: Some(self.error_rules.clone()),
            resource_limits: Some(self.resource_limits),
            artifacts: Some(self.artifacts.clone()),
            a2a,
        }
    }
}
