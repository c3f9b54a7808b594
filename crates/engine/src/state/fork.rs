//! A task that goes on from a checkpoint of another.

use std::sync::Arc;

use polity_model::event::{Event, OwnerEpoch, RecordedEvent, StreamId};
use polity_model::machine::Machine;
use polity_model::machine::agent_loop::LoopState;
use polity_model::task::{TaskExecution, TaskOrder};

use super::{CorruptJournal, TaskState, TaskWork, TurnCall};

/// Why a task cannot go on from a checkpoint of another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotFork {
    /// A call of the other task would be made by both.
    #[error("a sub-agent of the task is at work there, and cannot work for two tasks")]
    SubAgentAtWork,
}

impl TaskState {
    /// Whether another task could go on from here.
    pub fn check_fork(&self) -> Result<(), CannotFork> {
        let is_sub_agent =
            |call: &TurnCall| call.tool.as_ref().is_some_and(|tool| tool.sub_agent().is_some());
        let mut open = self.calls.open();
        match &self.work {
            // The calls of a model's turn stand in the conversation.
            TaskWork::Agent(_) if open.any(is_sub_agent) => Err(CannotFork::SubAgentAtWork),
            TaskWork::Agent(_) => Ok(()),
            // A workflow begins anew what had not ended, as it does all that comes after.
            TaskWork::Workflow(_) => Ok(()),
        }
    }

    /// The beginning of a task that goes on from here: the same State, and nothing under way.
    pub fn fork(&self, first: RecordedEvent) -> Result<Self, CorruptJournal> {
        let (StreamId::Task(id), Event::TaskCreated(mut created)) = (first.stream, first.event)
        else {
            return Err(CorruptJournal::NoBeginning);
        };
        let mut work = self.work.clone();
        match &mut work {
            TaskWork::Agent(context) => context.current_task = Some(id),
            TaskWork::Workflow(run) => **run = run.forked()?,
        }
        let mut calls = self.calls.clone();
        if let TaskWork::Workflow(_) = work {
            calls.clear();
        }
        let pins = std::mem::take(&mut created.pins);
        let order = TaskOrder::of(id, created, first.at);
        Ok(Self {
            sequence: first.sequence,
            task: TaskExecution::new(Arc::new(order)),
            work,
            pins,
            owner: None,
            epoch: OwnerEpoch::default(),
            execution: None,
            doing: LoopState::INITIAL,
            retry_at: None,
            call_retries: 0,
            calls,
            kept_from: self.kept_from,
            review: None,
            iterations: self.iterations,
            corrections: 0,
            checkpoints: 0,
            marks: self.marks.clone(),
            cancel_requested: false,
            remote: None,
            remote_is_open: false,
            shared: self.message_count(),
        })
    }
}
