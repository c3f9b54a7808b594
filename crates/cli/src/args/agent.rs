//! What is typed to look at agents, to add them, and to say whether they take work.

use std::num::{NonZeroU32, NonZeroU64};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the home's agents
    List,
    /// Show an agent's definition, with its defaults
    Show(AgentArgs),
    /// Show what runs of an agent and what waits; without a name, of all
    Status(AgentStatusArgs),
    /// Write the file of a new agent, once it is known to be valid
    Add(Box<AgentAddArgs>),
    /// Let an agent take work, whatever its file says
    Enable(AgentArgs),
    /// Let an agent take no new work, whatever its file says; what is under way goes on
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
    /// Why; whoever gives it work is told
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
}

/// What performs an agent's work.
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
    /// The agent's name, which is also that of its file
    pub(crate) name: String,
    /// What performs its work
    #[arg(long, default_value = "cli")]
    pub(crate) kind: KindArg,
    /// What it is for, in a few words
    #[arg(long, value_name = "TEXT")]
    pub(crate) role: Option<String>,
    /// The model, of a language model or of a program that is told which to use
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// How often what failed for a passing reason is tried again
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_retries: Option<u32>,
    #[command(flatten)]
    pub(crate) program: AddProgramArgs,
    #[command(flatten)]
    pub(crate) llm: AddLlmArgs,
    /// The address of the card of an agent on another server
    #[arg(long, value_name = "URL")]
    pub(crate) card_url: Option<String>,
    /// Any other field, or a part of one such as resource_limits.memory_mb; JSON if it parses, else a
    /// text. May be repeated
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
}

/// What a command-line program is.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Command-line programs")]
pub(crate) struct AddProgramArgs {
    /// A known program, which needs nothing else
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// The program: a path, or a name to look up in PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) executable: Option<String>,
    /// An argument of the program, as it is: --arg=-x. May be repeated
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
    /// A variable for the program; a secret is written as NAME='${OTHER}'. May be repeated
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) envs: Vec<String>,
    /// A variable of Polity's own environment that is handed on. May be repeated
    #[arg(long = "env-allow", value_name = "NAME")]
    pub(crate) env_allow: Vec<String>,
    /// Where it runs, from the home folder on
    #[arg(long, value_name = "DIR")]
    pub(crate) working_directory: Option<String>,
    /// Whether it changes things: read-only or read-write
    #[arg(long, value_name = "TYPE")]
    pub(crate) access_type: Option<String>,
    /// How many may run at once
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_concurrent_executions: Option<NonZeroU32>,
    /// How long a run may take
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<NonZeroU64>,
    /// How it takes its input: stdin, args, file or json-rpc
    #[arg(long, value_name = "PATTERN")]
    pub(crate) input_pattern: Option<String>,
    /// How it gives its output: stdout, file or json-rpc
    #[arg(long, value_name = "PATTERN")]
    pub(crate) output_pattern: Option<String>,
    /// Which files it sees: shared, copy or worktree
    #[arg(long, value_name = "WORKSPACE")]
    pub(crate) workspace: Option<String>,
}

/// What a language model is.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Language models")]
pub(crate) struct AddLlmArgs {
    /// The instruction that opens each of its conversations
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Who serves the model
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// The base address of the API
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The environment variable that holds the key
    #[arg(long, value_name = "NAME")]
    pub(crate) api_key_env: Option<String>,
    /// The script of a scripted model
    #[arg(long, value_name = "NAME")]
    pub(crate) script: Option<String>,
    /// A tool that it may use, as SERVER/TOOL or SERVER/*. May be repeated
    #[arg(long = "tool", value_name = "TOOL")]
    pub(crate) tools: Vec<String>,
}
