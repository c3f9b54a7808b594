//! Agents that are command-line programs: what such an agent is once its file is valid.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::failure::ErrorCategory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cli_glob::PathGlob;
use super::cli_parser::OutputParser;
use super::cli_preset::CliPreset;
use super::cli_template::CliTemplate;
use crate::value::{EnvName, Pattern, Text};

/// A command-line program, valid and frozen.
///
/// With a `preset` the fields that are left open are the preset's to fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliAgent {
    /// What the agent is for.
    pub role: Option<Text>,
    /// The known program whose settings fill in what is left open.
    pub preset: Option<CliPreset>,
    /// The program; there unless a preset is.
    pub executable_path: Option<Text>,
    /// Its arguments, in order; open only with a preset.
    pub cli_args: Option<Vec<CliTemplate>>,
    /// The model that the program is to use, if it is asked for one.
    pub model: Option<Text>,
    /// Environment variables to set; a value may name another variable as `${NAME}`.
    pub envs: BTreeMap<EnvName, String>,
    /// Variables of Polity's own environment that are handed on.
    pub env_allow: Vec<EnvName>,
    /// Variables that are never handed on.
    pub env_unset: Vec<EnvName>,
    /// Where the program runs; where Polity runs unless given.
    pub working_directory: Option<Text>,
    /// The form of input and output in one word, if given.
    pub agent_type: Option<AgentType>,
    /// How the program takes its input; open only with a preset.
    pub input_pattern: Option<InputPattern>,
    /// How the program gives its output; open only with a preset.
    pub output_pattern: Option<OutputPattern>,
    /// The content of the input file.
    pub input_file_template: Option<CliTemplate>,
    /// The path of the output file.
    pub output_file_template: Option<CliTemplate>,
    /// How the output is understood; as plain text if neither it nor a preset says.
    pub parser: Option<OutputParser>,
    /// One run for each task, or a conversation that goes on.
    pub mode: AgentMode,
    /// Whether the program changes things.
    pub access_type: AccessType,
    /// How many may run at once.
    pub max_concurrent_executions: NonZeroU32,
    /// How long one run may take.
    pub timeout_seconds: NonZeroU64,
    /// How long the start may take.
    pub start_timeout_seconds: Option<NonZeroU64>,
    /// How long the program may be silent.
    pub idle_timeout_seconds: Option<NonZeroU64>,
    /// How long a conversation may go on.
    pub session_timeout_seconds: Option<NonZeroU64>,
    /// Whether the process stays between the messages of a conversation.
    pub keep_alive: bool,
    /// Whether the agent takes work.
    pub enabled: bool,
    /// How often a run that failed for a passing reason is repeated.
    pub max_retries: u32,
    /// What happens when the program asks for permission.
    pub permission_policy: PermissionPolicy,
    /// Runs that share a key never run at once.
    pub lock_key: Option<Text>,
    /// Which files the program sees.
    pub workspace: WorkspaceMode,
    /// Whether a run may be repeated without harm.
    pub idempotent: bool,
    /// For how long the same input gives the earlier result.
    pub deduplicate_seconds: Option<NonZeroU64>,
    /// How many runs may wait.
    pub queue_limit: u32,
    /// How long a run may wait.
    pub queue_timeout_seconds: NonZeroU64,
    /// How long the program has to end by itself after the stop signal.
    pub grace_seconds: u64,
    /// The signal that asks the program to end.
    pub stop_signal: StopSignal,
    /// The exit codes of a run that went well.
    pub success_exit_codes: Vec<i32>,
    /// How messages of the program tell passing failures from lasting ones; the first match wins.
    pub error_rules: Vec<ErrorRule>,
    /// What one run may use.
    pub resource_limits: ResourceLimits,
    /// Files to keep of the folder in which the program ran.
    pub artifacts: Vec<PathGlob>,
}

impl CliAgent {
    /// The program or the preset, whichever is given.
    pub fn program(&self) -> &str {
        let path = self.executable_path.as_ref().map(Text::as_str);
        path.or(self.preset.map(CliPreset::as_str)).unwrap_or_default()
    }
}

/// The form of a program's input and output in one word.
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

/// How a program takes its input.
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

/// How a program gives its output.
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

/// One run for each task, or a conversation that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// One run for each task.
    #[default]
    Task,
    /// A conversation that goes on.
    Interactive,
}

/// Whether a program changes things.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessType {
    /// It only reads, so several may run at once.
    ReadOnly,
    /// It may change things, so one runs at a time.
    #[default]
    ReadWrite,
}

/// What happens when a program asks for permission.
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

/// Which files a program sees.
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

/// The signal that asks a program to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StopSignal {
    /// The usual one.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// As if the person at the keyboard pressed Ctrl-C.
    #[serde(rename = "SIGINT")]
    Int,
    /// As if the terminal went away.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// As if the person at the keyboard pressed Ctrl-\.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// At once, without asking.
    #[serde(rename = "SIGKILL")]
    Kill,
}

/// How a message of the program tells what kind of failure it is. A run in which one is found has
/// failed, whatever its exit code is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    /// A regular expression on what the program writes to `stream`. The end of it is searched, and
    /// the text of the error that the parser finds.
    pub pattern: Pattern,
    /// Where the program writes such messages.
    #[serde(default)]
    pub stream: ErrorStream,
    /// The kind of failure.
    pub category: ErrorCategory,
}

/// Where a program writes messages of failures.
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

/// What one run may use.
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
