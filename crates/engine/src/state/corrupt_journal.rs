//! Errors in a journal that cannot be folded.

use polity_model::event::StreamSequence;
use polity_model::execution::RetryRefused;
use polity_model::ids::ToolCallId;
use polity_model::machine::IllegalTransition;
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::node::NodeState;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;
use polity_model::name::Name;
use polity_model::state::InvalidUpdate;
use polity_model::task::RunFinished;

/// A journal with an impossible sequence of events.
#[derive(Debug, thiserror::Error)]
pub enum CorruptJournal {
    /// The first event is not the creation, or a later one is.
    #[error("the journal of a task begins with its creation")]
    NoBeginning,
    /// An event is missing or duplicated.
    #[error("event {found:?} follows on {last:?}")]
    Gap {
        /// The last sequence read.
        last: StreamSequence,
        /// The next sequence.
        found: StreamSequence,
    },
    /// An illegal transition of the task.
    #[error(transparent)]
    Task(#[from] IllegalTransition<TaskStatus>),
    /// An illegal transition of the execution.
    #[error(transparent)]
    Execution(#[from] RetryRefused),
    /// Usage was charged after the end.
    #[error(transparent)]
    Charged(#[from] RunFinished),
    /// An illegal transition of the loop.
    #[error(transparent)]
    Loop(#[from] IllegalTransition<LoopState>),
    /// An illegal transition of a tool call.
    #[error(transparent)]
    Call(#[from] IllegalTransition<CallState>),
    /// A change of an unknown tool call.
    #[error("no one asked for the tool call {0}")]
    NoCall(ToolCallId),
    /// An answer without an open review.
    #[error("a person answered what was not asked")]
    NoReview,
    /// An illegal transition of a node.
    #[error(transparent)]
    Node(#[from] IllegalTransition<NodeState>),
    /// A change of a node that the workflow does not have, or that no edge leads to.
    #[error("the workflow has no node {0} there")]
    NoNode(Name),
    /// A change of an item that is not in progress, or that the map does not have.
    #[error("the map has no item {0} there")]
    NoItem(u32),
    /// A change of a node in a task without a workflow.
    #[error("the task has no workflow, and a node of one moved on")]
    NoWorkflow,
    /// A fork or retry whose assignee is of another kind than that of the task it continues.
    #[error("the task continues one whose assignee is of another kind")]
    OtherAssignee,
    /// An invalid update of the State.
    #[error(transparent)]
    Update(#[from] InvalidUpdate),
    /// An event that does not belong to a task.
    #[error("{0} is no event of a task")]
    NotOfATask(&'static str),
    /// A change of an execution that has not started.
    #[error("an execution moved on that had not started")]
    NoExecution,
}
