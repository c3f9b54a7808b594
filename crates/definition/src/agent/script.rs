//! Agents that run the script of a workflow's node. No file declares one: its node does.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::name::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cli::{
    AccessType, AgentMode, CliAgent, EmptyOutputPolicy, InputPattern, OutputPattern,
    PermissionPolicy, ResourceLimits, StopSignal, WorkspaceMode,
};
use super::{AgentDefinition, AgentKind};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::EnvName;
use crate::value::command_line::ProgramCommand;
use crate::workflow::{ScriptPath, ScriptProgram, WorkflowNode, WorkflowNodeKind};
use crate::{nonzero_u32, nonzero_u64};

/// The most runs of one script at once.
pub const SCRIPT_RUNS_MAX: NonZeroU32 = nonzero_u32(64);

const TIMEOUT_DEFAULT: NonZeroU64 = nonzero_u64(300);
const MAX_RETRIES_DEFAULT: u32 = 3;
const GRACE_SECONDS: u64 = 10;

/// The working directory of scripts, relative to the home.
const HOME_FOLDER: &str = ".";

/// The agent of a script node, as tasks pin it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptAgentFile {
    /// The agent's name.
    pub(crate) name: Option<Name>,
    /// The script's path inside the home.
    file: Option<ScriptPath>,
    /// The program with its arguments.
    command: Option<ProgramCommand>,
    /// Environment variables to set.
    envs: Option<BTreeMap<EnvName, String>>,
    /// The time limit of one run, in seconds.
    timeout: Option<NonZeroU64>,
    /// The retry limit after transient failures.
    max_retries: Option<u32>,
    /// True if a run is safe to repeat.
    idempotent: Option<bool>,
}

impl ScriptAgentFile {
    pub(super) fn check(self, checker: &mut FileChecker) -> Option<CliAgent> {
        let root = FieldPath::root();
        if !checker.is_pinned_definition() {
            let message = "no file declares a script agent: a script is a step of a workflow, as \
                           {type: script, file: steps/NAME.py}";
            let finding = FindingText::new(message).found("script").allowed("llm, cli, remote");
            checker.report(&root.field("kind"), finding);
            return None;
        }
        let file = self.file.map(ScriptProgram::File);
        let program = file.or(self.command.map(ScriptProgram::Command));
        let program = checker.require(&root.field("file"), program)?;
        Some(CliAgent {
            envs: self.envs.unwrap_or_default(),
            timeout_seconds: self.timeout.unwrap_or(TIMEOUT_DEFAULT),
            max_retries: self.max_retries.unwrap_or(MAX_RETRIES_DEFAULT),
            idempotent: self.idempotent.unwrap_or(false),
            ..CliAgent::running(program)
        })
    }

    /// The pinned form of an agent, if it runs the script of a node.
    pub(super) fn of(name: &Name, agent: &CliAgent) -> Option<Self> {
        let (file, command) = match agent.script.clone()? {
            ScriptProgram::File(file) => (Some(file), None),
            ScriptProgram::Command(command) => (None, Some(command)),
        };
        Some(Self {
            name: Some(name.clone()),
            file,
            command,
            envs: Some(agent.envs.clone()),
            timeout: Some(agent.timeout_seconds),
            max_retries: Some(agent.max_retries),
            idempotent: Some(agent.idempotent),
        })
    }
}

impl AgentDefinition {
    /// The agent that runs the script of a node; none for a node without one.
    pub fn of_script(node: &WorkflowNode) -> Option<Self> {
        let WorkflowNodeKind::Script { program, envs, empty_output, .. } = &node.kind else {
            return None;
        };
        let agent = CliAgent {
            envs: envs.clone(),
            timeout_seconds: node.timeout_seconds.unwrap_or(TIMEOUT_DEFAULT),
            max_retries: node.max_retries.unwrap_or(MAX_RETRIES_DEFAULT),
            idempotent: node.idempotent.unwrap_or(false),
            empty_output: *empty_output,
            ..CliAgent::running(program.clone())
        };
        Some(Self { name: program.agent_name(), kind: AgentKind::Cli(agent), a2a: None })
    }
}

impl CliAgent {
    /// The agent that runs a script in the home folder, with the default settings.
    fn running(program: ScriptProgram) -> Self {
        Self {
            role: None,
            preset: None,
            executable_path: program.executable().parse().ok(),
            cli_args: Some(Vec::new()),
            model: None,
            envs: BTreeMap::new(),
            env_allow: Vec::new(),
            env_unset: Vec::new(),
            working_directory: HOME_FOLDER.parse().ok(),
            agent_type: None,
            input_pattern: Some(InputPattern::Stdin),
            output_pattern: Some(OutputPattern::Stdout),
            input_file_template: None,
            output_file_template: None,
            parser: None,
            mode: AgentMode::Task,
            // A script may change anything, so that only `idempotent` makes it safe to repeat.
            access_type: AccessType::ReadWrite,
            max_concurrent_executions: SCRIPT_RUNS_MAX,
            timeout_seconds: TIMEOUT_DEFAULT,
            start_timeout_seconds: None,
            idle_timeout_seconds: None,
            session_timeout_seconds: None,
            keep_alive: false,
            enabled: true,
            max_retries: MAX_RETRIES_DEFAULT,
            permission_policy: PermissionPolicy::Ask,
            lock_key: None,
            workspace: WorkspaceMode::Shared,
            idempotent: false,
            never_repeat: false,
            deduplicate_seconds: None,
            // A step waits for its turn however long the queue is.
            queue_limit: None,
            queue_timeout_seconds: None,
            empty_output: EmptyOutputPolicy::Fail,
            grace_seconds: GRACE_SECONDS,
            stop_signal: StopSignal::Term,
            success_exit_codes: vec![0],
            error_rules: Vec::new(),
            resource_limits: ResourceLimits::default(),
            artifacts: Vec::new(),
            script: Some(program),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::WorkflowDefinition;

    fn nodes(nodes: &str) -> Vec<WorkflowNode> {
        let file = format!("{{name: w, entry_point: a, nodes: {{{nodes}}}}}");
        WorkflowDefinition::from_canonical(&file).unwrap().nodes
    }

    #[test]
    fn agent_of_a_script_is_pinned_and_read_back() {
        let nodes = nodes(
            "a: {type: script, file: steps/a.py, timeout_seconds: 7, max_retries: 1, idempotent: \
             true, envs: {KEY: '${KEY}'}}",
        );
        let agent = AgentDefinition::of_script(&nodes[0]).unwrap();
        assert_eq!(agent.name.as_str(), "script_steps_a");
        let cli = agent.program().unwrap();
        assert_eq!((cli.timeout_seconds.get(), cli.max_retries, cli.idempotent), (7, 1, true));
        assert_eq!(cli.program(), "python3");
        assert_eq!(AgentDefinition::from_canonical(&agent.canonical_json()).unwrap(), agent);
    }

    #[test]
    fn arguments_of_a_command_are_taken_literally() {
        let nodes = nodes("a: {type: script, command: [echo, '{{x}}', '${HOME}']}");
        let agent = AgentDefinition::of_script(&nodes[0]).unwrap();
        let read = AgentDefinition::from_canonical(&agent.canonical_json()).unwrap();
        let script = read.program().unwrap().script.as_ref().unwrap();
        assert_eq!(script.arguments(), ["{{x}}", "${HOME}"]);
    }
}
