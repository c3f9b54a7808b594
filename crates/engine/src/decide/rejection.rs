//! Reasons for refusing a command.

use jiff::Timestamp;
use polity_model::ids::{CheckpointId, InstanceId, TaskId};
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::state::InvalidUpdate;

/// The reason for refusing a command. The task is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRejection {
    /// The input is empty.
    #[error("the input is empty")]
    EmptyInput,
    /// The input exceeds the configured limit.
    #[error("the input has {found} bytes; limits.input_bytes allows {limit}")]
    InputTooLarge {
        /// The size of the input in bytes.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The chain of sub-agents is longer than the configured limit.
    #[error(
        "work could be handed on over {} steps ({}); limits.sub_agent_depth allows {limit}",
        chain.len().saturating_sub(1),
        spelled(chain)
    )]
    TooDeep {
        /// The longest chain of agents.
        chain: Vec<Name>,
        /// The maximum number of handovers.
        limit: u32,
    },
    /// The agent is disabled.
    #[error("agent \"{agent}\" is disabled{}", because(reason.as_deref()))]
    Disabled {
        /// The agent.
        agent: Name,
        /// The reason given when it was disabled.
        reason: Option<String>,
    },
    /// This version cannot run the agent's kind.
    #[error("agent \"{agent}\" is of kind {kind}, which this version cannot run yet")]
    KindNotRunnable {
        /// The agent.
        agent: Name,
        /// Its kind.
        kind: &'static str,
    },
    /// The task runs a workflow and has no agent.
    #[error("task {task} runs a workflow and has no agent of its own")]
    NoAgent {
        /// The task.
        task: TaskId,
    },
    /// The State does not allow the update.
    #[error(transparent)]
    InvalidUpdate(#[from] InvalidUpdate),
    /// A State update came with an answer to something other than a workflow's question.
    #[error("task {task} {asks}; the State of its agent cannot be changed with the answer")]
    NoStateThere {
        /// The task.
        task: TaskId,
        /// The open question, as a phrase.
        asks: &'static str,
    },
    /// The answer came after the deadline.
    #[error("task {task} waited for an answer until {deadline}, which has passed")]
    TooLate {
        /// The task.
        task: TaskId,
        /// The deadline.
        deadline: Timestamp,
    },
    /// The review has not expired yet.
    #[error("task {task} waits for an answer until {deadline}")]
    TooEarly {
        /// The task.
        task: TaskId,
        /// The deadline.
        deadline: Timestamp,
    },
    /// The task has ended.
    #[error("task {task} is already {status}")]
    Finished {
        /// The task.
        task: TaskId,
        /// Its final status.
        status: TaskStatus,
    },
    /// The task waits for a person.
    #[error("task {task} is waiting for a person's decision")]
    AwaitingHuman {
        /// The task.
        task: TaskId,
    },
    /// Another live process owns the task.
    #[error("task {task} is running in another process")]
    OwnerAlive {
        /// The task.
        task: TaskId,
        /// The owner.
        owner: InstanceId,
    },
    /// The task came from an archive, and no person has allowed it to run.
    #[error("task {task} was imported, and runs only after you trust it")]
    NeedsTrust {
        /// The task.
        task: TaskId,
    },
    /// No review is open.
    #[error("task {task} has no open review: it is {status}")]
    NothingToDecide {
        /// The task.
        task: TaskId,
        /// Its status.
        status: TaskStatus,
    },
    /// The answer refers to an earlier review than the open one.
    #[error("task {task} was already answered and now asks something else: {question}")]
    AnotherQuestion {
        /// The task.
        task: TaskId,
        /// The open question.
        question: String,
    },
    /// The task has no such checkpoint.
    #[error("task {task} has no checkpoint {checkpoint}")]
    NoSuchCheckpoint {
        /// The task.
        task: TaskId,
        /// The checkpoint that the answer refers to.
        checkpoint: CheckpointId,
    },
    /// A call in doubt needs an explicit choice: retry or skip.
    #[error("a call of task {task} is in doubt: decide whether to repeat it")]
    DoubtNeedsChoice {
        /// The task.
        task: TaskId,
    },
    /// A remote agent's question needs an answer in words.
    #[error("task {task} has a question from its remote agent, which needs a text as answer")]
    AnswerNeedsText {
        /// The task.
        task: TaskId,
    },
    /// The verdict does not fit the review.
    #[error("task {task} {asks}; that cannot be answered with {verdict}")]
    WrongVerdict {
        /// The task.
        task: TaskId,
        /// The open question, as a phrase.
        asks: &'static str,
        /// The verdict, as a phrase.
        verdict: &'static str,
    },
    /// The tool rejects the arguments.
    #[error("{tool} does not take these arguments: {problem}")]
    Misfit {
        /// The tool.
        tool: String,
        /// The first problem.
        problem: String,
    },
    /// The step cannot take the result that a person supplies.
    #[error("node {node} cannot take this result: {problem}")]
    UnfitResult {
        /// The node.
        node: Name,
        /// The expected form.
        problem: String,
    },
    /// The command does not fit the task's current state.
    #[error("task {task} is {status} ({doing}): it cannot take {command} now")]
    UnexpectedCommand {
        /// The task.
        task: TaskId,
        /// Its status.
        status: TaskStatus,
        /// The state of its loop.
        doing: LoopState,
        /// The command.
        command: &'static str,
    },
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

fn spelled(chain: &[Name]) -> String {
    chain.iter().map(Name::as_str).collect::<Vec<_>>().join(" -> ")
}
