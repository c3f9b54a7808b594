//! Arguments of `polity task show`, `fork` and `diff`.

use clap::Args as ClapArgs;

use super::{RecordingArgs, TaskArgs};

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
    /// a part of it such as metadata.topic; JSON if it parses, else a string. May be repeated
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the new task's id and run in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Let a fork of an imported task run the commands and use the endpoints of that task
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
