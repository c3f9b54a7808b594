//! What is typed to look into tasks and to let them go another way.

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
    /// The checkpoint to go on from; `polity task checkpoints` lists them
    #[arg(long, value_name = "CHECKPOINT")]
    pub(crate) from: u32,
    /// What to change in the State first: messages (appended), routing_key, next_action, metadata or
    /// a part of it such as metadata.topic; JSON if it parses, else a text. May be repeated
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print the new task's id and go on in the background
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// One task: its id, or as much of its beginning as tells it from others; or "last"
    pub(crate) a: String,
    /// The other task
    pub(crate) b: String,
}
