//! CLI agents: the valid definition.

mod args;
mod check;
pub(crate) mod file;
pub(crate) mod glob;
pub(crate) mod parser;
pub(crate) mod preset;
pub(crate) mod template;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::failure::ErrorCategory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::glob::PathGlob;
use self::parser::OutputParser;
use self::preset::CliPreset;
use self::template::CliTemplate;
use crate::value::{EnvName, Pattern, Text};
use crate::workflow::ScriptProgram;

/// A command-line program, valid and frozen.
///
/// With a `preset` the fields that are left open are the preset's to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the file")]
pub struct CliAgent {
    /// The agent's role.
    pub role: Option<Text>,
    /// The preset that fills in unset fields.
    pub preset: Option<CliPreset>,
    /// The program; there unless a preset is.
    pub executable_path: Option<Text>,
    /// Its arguments, in order; open only with a preset.
    pub cli_args: Option<Vec<CliTemplate>>,
    /// The model, if one is set.
    pub model: Option<Text>,
    /// Environment variables to set; a value may name another variable as `${NAME}`.
    pub envs: BTreeMap<EnvName, String>,
    /// The variables to pass on from Polity's own environment.
    pub env_allow: Vec<EnvName>,
    /// The variables that are never passed on.
    pub env_unset: Vec<EnvName>,
    /// The working directory; default Polity's own.
    pub working_directory: Option<Text>,
    /// The form of input and output in one word, if set.
    pub agent_type: Option<AgentType>,
    /// The form of the input; unset only with a preset.
    pub input_pattern: Option<InputPattern>,
    /// The form of the output; unset only with a preset.
    pub output_pattern: Option<OutputPattern>,
    /// The content of the input file.
    pub input_file_template: Option<CliTemplate>,
    /// The path of the output file.
    pub output_file_template: Option<CliTemplate>,
    /// The output parser; plain text if neither it nor a preset is set.
    pub parser: Option<OutputParser>,
    /// One run for each task, or one conversation.
    pub mode: AgentMode,
    /// The access of the CLI agent to its files.
    pub access_type: AccessType,
    /// The concurrency limit.
    pub max_concurrent_executions: NonZeroU32,
    /// The time limit of one run.
    pub timeout_seconds: NonZeroU64,
    /// The time limit of the start.
    pub start_timeout_seconds: Option<NonZeroU64>,
    /// The time limit without output.
    pub idle_timeout_seconds: Option<NonZeroU64>,
    /// The time limit of a conversation.
    pub session_timeout_seconds: Option<NonZeroU64>,
    /// True if the process stays alive between the messages of a conversation.
    pub keep_alive: bool,
    /// True if the agent accepts tasks.
    pub enabled: bool,
    /// The retry limit after transient failures.
    pub max_retries: u32,
    /// The answer to permission requests of the CLI agent.
    pub permission_policy: PermissionPolicy,
    /// Runs that share a key never run at once.
    pub lock_key: Option<Text>,
    /// The files that the CLI agent works on.
    pub workspace: WorkspaceMode,
    /// True if a run is safe to repeat.
    pub idempotent: bool,
    /// True if a run is never repeated, because its node declares `idempotent: false`.
    pub never_repeat: bool,
    /// The deduplication window: duplicates within it share one result.
    pub deduplicate_seconds: Option<NonZeroU64>,
    /// The length limit of the queue; none if a task waits as long as it takes.
    pub queue_limit: Option<u32>,
    /// The time limit in the queue, if there is one.
    pub queue_timeout_seconds: Option<NonZeroU64>,
    /// The time between the stop signal and SIGKILL.
    pub grace_seconds: u64,
    /// The signal that stops the process.
    pub stop_signal: StopSignal,
    /// The exit codes of a run that went well.
    pub success_exit_codes: Vec<i32>,
    /// The reaction to a run that went well and printed nothing.
    pub empty_output: EmptyOutputPolicy,
    /// The rules that classify failures by their messages; the first match wins.
    pub error_rules: Vec<ErrorRule>,
    /// The resource limits of one run.
    pub resource_limits: ResourceLimits,
    /// The patterns of artifacts to save after a run.
    pub artifacts: Vec<PathGlob>,
    /// The script that it runs, if it performs a script node of a workflow. The path of the script
    /// is the last argument.
    pub script: Option<ScriptProgram>,
}

impl CliAgent {
    /// The reaction to a full queue.
    pub fn queue_full(&self) -> QueueFullPolicy {
        match self.queue_limit {
            Some(_) => QueueFullPolicy::Refuse,
            None => QueueFullPolicy::Wait,
        }
    }

    /// The executable, or else the preset.
    pub fn program(&self) -> &str {
        let path = self.executable_path.as_ref().map(Text::as_str);
        path.or(self.preset.map(CliPreset::as_str)).unwrap_or_default()
    }
}

/// The reaction to a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueFullPolicy {
    /// Wait in order, as long as it takes.
    Wait,
    /// Refuse the task if `queue_limit` runs wait already.
    Refuse,
}

/// The reaction to a run that went well and printed nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyOutputPolicy {
    /// Fail the run: the answer is missing.
    #[default]
    Fail,
    /// Take the empty text as the answer.
    Accept,
}

/// The form of input and output in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentType {
    /// Reads stdin, writes stdout.
    StdinStdout,
    /// Reads a file.
    FileInput,
    /// Speaks JSON-RPC over stdin and stdout.
    JsonRpc,
}

/// The form of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InputPattern {
    /// On stdin.
    Stdin,
    /// In a file whose path is an argument.
    File,
    /// As an argument.
    Args,
    /// As JSON-RPC on stdin.
    JsonRpc,
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputPattern {
    /// On stdout.
    Stdout,
    /// In a file.
    File,
    /// As JSON-RPC on stdout.
    JsonRpc,
}

/// One run for each task, or one conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// One run for each task.
    #[default]
    Task,
    /// One process for a whole conversation.
    Interactive,
}

/// The access of a CLI agent to its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessType {
    /// Reads only, so that runs may be concurrent.
    ReadOnly,
    /// May write, so that one run happens at a time.
    #[default]
    ReadWrite,
}

/// The answer to permission requests of a CLI agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionPolicy {
    /// It is granted.
    Allow,
    /// It is refused.
    Deny,
    /// A person decides.
    #[default]
    Ask,
}

/// The files that a CLI agent works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Workspace")]
pub enum WorkspaceMode {
    /// The working directory itself.
    #[default]
    Shared,
    /// A Git worktree of its own.
    Worktree,
    /// A copy of its own.
    Copy,
}

/// The signal that stops a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StopSignal {
    /// The default.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// The signal of Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int,
    /// The signal of a closed terminal.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// The signal of Ctrl-\.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// Immediate termination.
    #[serde(rename = "SIGKILL")]
    Kill,
}

/// A rule that classifies a failure by its message. A run with a match has failed, regardless of
/// its exit code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    /// A regular expression. It searches the end of `stream` and the error text found by the
    /// parser.
    pub pattern: Pattern,
    /// The stream to search.
    #[serde(default)]
    pub stream: ErrorStream,
    /// The kind of failure.
    pub category: ErrorCategory,
}

/// The stream with error messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorStream {
    /// To stderr.
    #[default]
    Stderr,
    /// To stdout, among its answers.
    Stdout,
    /// To either.
    Both,
}

/// The resource limits of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// The most memory, in megabytes, for all of its processes together.
    pub memory_mb: Option<NonZeroU64>,
    /// The most CPU time, in seconds.
    pub cpu_seconds: Option<NonZeroU64>,
    /// The most processes at once.
    pub processes: Option<NonZeroU32>,
    /// The most output, in bytes.
    pub output_bytes: Option<NonZeroU64>,
}
