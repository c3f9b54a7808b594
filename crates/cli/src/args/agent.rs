//! Arguments of `polity agent`.

use std::num::{NonZeroU32, NonZeroU64};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the home's agents
    List,
    /// Show an agent's definition, with its defaults
    Show(AgentArgs),
    /// Show running and queued executions of an agent, or of all agents
    Status(AgentStatusArgs),
    /// Validate and write the file of a new agent
    Add(Box<AgentAddArgs>),
    /// Enable an agent, overriding its file
    Enable(AgentArgs),
    /// Disable an agent for new tasks, overriding its file; running tasks continue
    Disable(AgentDisableArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentArgs {
    /// The agent's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentStatusArgs {
    /// The agent's name
    pub(crate) name: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentDisableArgs {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// The reason, shown to everyone who gives it a task
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
}

/// A kind of agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// A language model with tools
    Llm,
    /// A command-line program
    Cli,
    /// An agent on another server
    Remote,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct AgentAddArgs {
    /// The agent's name and the name of its file
    pub(crate) name: String,
    /// The kind of agent
    #[arg(long, default_value = "cli")]
    pub(crate) kind: KindArg,
    /// The agent's role, in a few words
    #[arg(long, value_name = "TEXT")]
    pub(crate) role: Option<String>,
    /// The model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// The number of retries after a transient failure
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_retries: Option<u32>,
    /// Any other field, or a part of one such as resource_limits.memory_mb; JSON if it parses, else a
    /// string. May be repeated
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    #[command(flatten)]
    pub(crate) program: AddProgramArgs,
    #[command(flatten)]
    pub(crate) llm: AddLlmArgs,
    /// The URL of the agent's card
    #[arg(long, value_name = "URL", help_heading = "Remote agents")]
    pub(crate) card_url: Option<String>,
}

/// Flags for CLI agents.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Command-line programs")]
pub(crate) struct AddProgramArgs {
    /// The preset of a known program, which needs no other flags
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// The executable: a path, or a name to look up in PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) executable: Option<String>,
    /// An argument for the program, passed unchanged: --arg=-x. May be repeated
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// An environment variable for the program; write a secret as NAME='${OTHER}'. May be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) envs: Vec<String>,
    /// A variable of Polity's environment to pass on. May be repeated
    #[arg(long = "env-allow", value_name = "NAME")]
    pub(crate) env_allow: Vec<String>,
    /// The working directory, relative to the home folder
    #[arg(long, value_name = "DIR")]
    pub(crate) working_directory: Option<String>,
    /// The access type: read-only or read-write
    #[arg(long, value_name = "TYPE")]
    pub(crate) access_type: Option<String>,
    /// The maximum number of concurrent executions
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_concurrent_executions: Option<NonZeroU32>,
    /// The timeout of a run
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<NonZeroU64>,
    /// The input pattern: stdin, args, file or json-rpc
    #[arg(long, value_name = "PATTERN")]
    pub(crate) input_pattern: Option<String>,
    /// The output pattern: stdout, file or json-rpc
    #[arg(long, value_name = "PATTERN")]
    pub(crate) output_pattern: Option<String>,
    /// The workspace: shared, copy or worktree
    #[arg(long, value_name = "WORKSPACE")]
    pub(crate) workspace: Option<String>,
}

/// Flags for language models.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Language models")]
pub(crate) struct AddLlmArgs {
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// The provider of the model
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// The base URL of the API
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The environment variable that holds the key
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// The script of a scripted model
    #[arg(long, value_name = "NAME")]
    pub(crate) script: Option<String>,
    /// An allowed tool, as SERVER/TOOL or SERVER/*. May be repeated
    #[arg(long = "tool", value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
}
