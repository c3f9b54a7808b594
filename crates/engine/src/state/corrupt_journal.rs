//! What is wrong with a journal that makes no sense.

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

/// A journal that no task could have written.
#[derive(Debug, thiserror::Error)]
pub enum CorruptJournal {
    /// A task's events begin with its creation, and no other does.
    #[error("the journal of a task begins with its creation")]
    NoBeginning,
    /// An event is missing or doubled.
    #[error("event {found:?} follows on {last:?}")]
    Gap {
        /// The last event that was read.
        last: StreamSequence,
        /// The one that came next.
        found: StreamSequence,
    },
    /// The task could not have done that.
    #[error(transparent)]
    Task(#[from] IllegalTransition<TaskStatus>),
    /// The execution could not have done that.
    #[error(transparent)]
    Execution(#[from] RetryRefused),
    /// Something was charged after the end.
    #[error(transparent)]
    Charged(#[from] RunFinished),
    /// The loop could not have done that.
    #[error(transparent)]
    Loop(#[from] IllegalTransition<LoopState>),
    /// A tool call could not have done that.
    #[error(transparent)]
    Call(#[from] IllegalTransition<CallState>),
    /// A tool call moved on that no one asked for.
    #[error("no one asked for the tool call {0}")]
    NoCall(ToolCallId),
    /// A person answered what was not asked.
    #[error("a person answered what was not asked")]
    NoReview,
    /// A node could not have done that.
    #[error(transparent)]
    Node(#[from] IllegalTransition<NodeState>),
    /// A node moved on that the workflow does not have, or that no edge leads to.
    #[error("the workflow has no node {0} there")]
    NoNode(Name),
    /// A node moved on in a task that has no workflow.
    #[error("the task has no workflow, and a node of one moved on")]
    NoWorkflow,
    /// The State was changed in a way that it does not allow.
    #[error(transparent)]
    Update(#[from] InvalidUpdate),
    /// Something happened in a task that happens elsewhere.
    #[error("{0} is no event of a task")]
    NotOfATask(&'static str),
    /// An execution moved on before it started.
    #[error("an execution moved on that had not started")]
    NoExecution,
}
