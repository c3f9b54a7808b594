//! Forks: tasks that continue from a checkpoint of another.

use polity_model::event::{RecordedEvent, StreamId};

use super::{CorruptJournal, TaskState, TaskWork, TurnCall};

/// The reason why a task cannot be forked at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFork {
    /// Both tasks would own the same sub-agent's call.
    #[error("a sub-agent of the task is at work there, and cannot work for two tasks")]
    SubAgentAtWork,
}

impl TaskState {
    /// Checks that the task can be forked here.
    pub fn check_fork(&self) -> Result<(), CannotFork> {
        let is_sub_agent =
            |call: &TurnCall| call.tool.as_ref().is_some_and(|tool| tool.sub_agent().is_some());
        let mut open = self.calls.open();
        match &self.work {
            // The calls of a model's turn are in the conversation.
            TaskWork::Agent(_) if open.any(is_sub_agent) => Err(CannotFork::SubAgentAtWork),
            TaskWork::Agent(_) => Ok(()),
            // A workflow restarts the nodes that had not ended.
            TaskWork::Workflow(_) => Ok(()),
        }
    }

    /// The initial state of a fork: the same State, with nothing in progress.
    pub fn fork(&self, first: RecordedEvent) -> Result<Self, CorruptJournal> {
        let StreamId::Task(id) = first.stream else { return Err(CorruptJournal::NoBeginning) };
        let mut work = self.work.clone();
        let mut calls = self.calls.clone();
        match &mut work {
            TaskWork::Agent(context) => context.current_task = Some(id),
            TaskWork::Workflow(run) => {
                **run = run.forked()?;
                calls.clear();
            }
        }
        Ok(Self {
            calls,
            kept_from: self.kept_from,
            iterations: self.iterations,
            marks: self.marks.clone(),
            shared: self.message_count(),
            ..Self::created(first, work)?
        })
    }
}
