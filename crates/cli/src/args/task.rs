//! Arguments of `polity task show`, `fork`, `retry` and `diff`.

use std::num::NonZeroU64;

use clap::{Args as ClapArgs, ValueEnum};
use polity_model::number::UsdLimit;

use super::{RecordingArgs, TaskArgs, token_limit, usd_limit};

#[derive(Debug, ClapArgs)]
pub(crate) struct TaskShowArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// Show this checkpoint of the task, with the State there
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) at: Option<u32>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// The checkpoint to continue from; `polity task checkpoints` lists them
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) from: u32,
    /// A change of the State: messages (appended), routing_key, next_action, metadata or
    /// a part of it such as metadata.topic, or nodes.NAME.output of a node that has finished; JSON
    /// if it parses, else a string. May be repeated
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Use the files of the home as they are now, and show what has changed
    #[arg(long, value_name = "current")]
    pub(crate) definitions: Option<DefinitionSource>,
    /// Print the new task's id and run in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Let a fork of an imported task run the commands and use the endpoints of that task
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

/// The definitions that a fork or retry uses in place of the pinned ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefinitionSource {
    /// The files of the home as they are now.
    Current,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
    /// Use the files of the home as they are now, and show what has changed
    #[arg(long, value_name = "current")]
    pub(crate) definitions: Option<DefinitionSource>,
    /// Spend at most this much, in place of the task's and the agent's limit; what was spent so far
    /// counts
    #[arg(long, value_name = "USD", value_parser = usd_limit, allow_negative_numbers = true)]
    pub(crate) max_cost_usd: Option<UsdLimit>,
    /// Use at most this many tokens, in place of the task's and the agent's limit; what was used so
    /// far counts
    #[arg(long, value_name = "TOKENS", value_parser = token_limit, allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<NonZeroU64>,
    /// The time limit of each model call, of each run of a CLI agent, and of each node that has one
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<NonZeroU64>,
    /// Print the new task's id and run in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Let a retry of an imported task run the commands and use the endpoints of that task
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// One task: its id, a unique prefix of it, or "last"
    pub(crate) a: String,
    /// The other task
    pub(crate) b: String,
}
