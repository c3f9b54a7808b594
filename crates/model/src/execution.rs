//! Executions: one attempt to run one agent for a task, with its retries.

pub mod remote;
pub mod run;
pub mod view;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::event::ExecutionChange;
use crate::failure::{AttemptFailure, ErrorCategory};
use crate::ids::{ExecutionId, TaskId};
use crate::machine::execution::{ExecutionState, ExecutionTransition};
use crate::machine::{IllegalTransition, Machine};
use crate::name::Name;
use crate::remote::RemoteTask;
use crate::run::RunReport;

/// The `max_retries` of an execution whose retries are limited by time instead.
pub const RETRIES_UNLIMITED: u32 = u32::MAX;

/// One change of an execution's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionStateChange {
    /// The state it left.
    pub from: ExecutionState,
    /// The state it entered.
    pub to: ExecutionState,
    /// The time of the change.
    pub timestamp: Timestamp,
}

/// An execution as it runs. It changes in place, like
/// [`TaskExecution`](crate::task::TaskExecution).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentExecution {
    /// The execution's id.
    pub id: ExecutionId,
    /// The agent that runs.
    pub agent: Name,
    /// The task it runs for.
    pub task_id: TaskId,
    /// The current status.
    pub state: ExecutionState,
    /// The state before.
    pub previous_state: ExecutionState,
    /// The time of the first start.
    pub start_time: Option<Timestamp>,
    /// The time its work ended.
    pub end_time: Option<Timestamp>,
    /// The time of the last change of `state`.
    pub last_state_change: Option<Timestamp>,
    /// The newest failure.
    pub failure: Option<AttemptFailure>,
    /// The number of retries so far.
    pub retry_count: u32,
    /// The retry limit; [`RETRIES_UNLIMITED`] if only time limits them.
    pub max_retries: u32,
    /// Every change of state, oldest first.
    pub state_transitions: Vec<ExecutionStateChange>,
    /// The slot pool it uses, for CLI agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The time limit of one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// The process that runs, or ran last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    /// The task on another server that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteTask>,
    /// The outcome of each CLI agent run or remote message, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<ExecutionRun>,
}

/// One run of a program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionRun {
    /// The outcome.
    #[serde(flatten)]
    pub report: RunReport,
    /// The time it ended.
    pub ended_at: Timestamp,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<AttemptFailure>,
}

/// Why an execution is not tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetryRefused {
    /// Only a failed execution is tried again.
    #[error(transparent)]
    NotFailed(#[from] IllegalTransition<ExecutionState>),
    /// Only a transient error may go away by itself.
    #[error("a {0} error is not retried: only transient ones are")]
    NotTransient(ErrorCategory),
    /// It has been tried often enough.
    #[error("the execution was retried {0} times, which is its max_retries")]
    NoneLeft(u32),
}

impl AgentExecution {
    /// An execution that has not begun.
    pub fn new(id: ExecutionId, agent: Name, task_id: TaskId, max_retries: u32) -> Self {
        Self {
            id,
            agent,
            task_id,
            state: ExecutionState::Idle,
            previous_state: ExecutionState::Idle,
            start_time: None,
            end_time: None,
            last_state_change: None,
            failure: None,
            retry_count: 0,
            max_retries,
            state_transitions: Vec::new(),
            pool: None,
            timeout_seconds: None,
            process_id: None,
            remote: None,
            runs: Vec::new(),
        }
    }

    /// Makes one transition. A retry has its own method, [`retry`](Self::retry), because it has
    /// a condition.
    pub fn advance(
        &mut self,
        on: ExecutionTransition,
        at: Timestamp,
    ) -> Result<(), IllegalTransition<ExecutionState>> {
        let to = self.state.transition(on)?;
        self.state_transitions.push(ExecutionStateChange { from: self.state, to, timestamp: at });
        match to {
            ExecutionState::Starting => {
                self.start_time.get_or_insert(at);
                self.end_time = None;
            }
            ExecutionState::Completed
            | ExecutionState::Failed
            | ExecutionState::Timeout
            | ExecutionState::Cancelled => self.end_time = Some(at),
            ExecutionState::Idle | ExecutionState::Running | ExecutionState::Cleanup => {}
        }
        self.previous_state = self.state;
        self.state = to;
        self.last_state_change = Some(at);
        Ok(())
    }

    /// Ends the attempt with a failure.
    pub fn fail(
        &mut self,
        failure: AttemptFailure,
        at: Timestamp,
    ) -> Result<(), IllegalTransition<ExecutionState>> {
        self.advance(ExecutionTransition::Fail, at)?;
        // The report of the run precedes its failure.
        if let Some(run) = self.runs.last_mut().filter(|run| run.failure.is_none()) {
            run.failure = Some(failure.clone());
        }
        self.failure = Some(failure);
        Ok(())
    }

    /// True if a failure of this category may be retried now.
    pub fn may_retry(&self, category: ErrorCategory) -> bool {
        category == ErrorCategory::Transient && self.retry_count < self.max_retries
    }

    /// Starts the next attempt after a transient failure.
    pub fn retry(&mut self, at: Timestamp) -> Result<(), RetryRefused> {
        let next = self.state.transition(ExecutionTransition::Retry);
        if let (Ok(_), Some(failure)) = (next, &self.failure) {
            if failure.category != ErrorCategory::Transient {
                return Err(RetryRefused::NotTransient(failure.category));
            }
            if self.retry_count >= self.max_retries {
                return Err(RetryRefused::NoneLeft(self.retry_count));
            }
        }
        self.advance(ExecutionTransition::Retry, at)?;
        self.retry_count += 1;
        Ok(())
    }

    /// Applies one change from the journal.
    pub fn apply(&mut self, change: &ExecutionChange, at: Timestamp) -> Result<(), RetryRefused> {
        use ExecutionTransition as On;
        let on = match change {
            ExecutionChange::Fail { failure, .. } => return Ok(self.fail(failure.clone(), at)?),
            ExecutionChange::Retry => return self.retry(at),
            ExecutionChange::Queue { pool, timeout_seconds, .. } => {
                self.pool = Some(pool.clone());
                self.timeout_seconds = Some(*timeout_seconds);
                return Ok(());
            }
            ExecutionChange::Report { report, .. } => {
                self.process_id = report.process_id.or(self.process_id);
                self.runs.push(ExecutionRun {
                    report: RunReport::clone(report),
                    ended_at: at,
                    failure: None,
                });
                return Ok(());
            }
            ExecutionChange::Run { process_id, remote } => {
                self.process_id = process_id.or(self.process_id);
                self.remote = remote.clone().or_else(|| self.remote.take());
                On::Run
            }
            // This concerns the remote server, not the state of the execution.
            ExecutionChange::EndRemote { .. } => return Ok(()),
            ExecutionChange::Start { .. } => On::Start,
            ExecutionChange::Complete => On::Complete,
            ExecutionChange::TimeOut => On::TimeOut,
            ExecutionChange::Cancel => On::Cancel,
            ExecutionChange::CleanUp => On::CleanUp,
            ExecutionChange::Finish => On::Finish,
        };
        Ok(self.advance(on, at)?)
    }

    /// True if it ended and cleanup is done.
    pub fn is_over(&self) -> bool {
        self.state == ExecutionState::Idle && !self.state_transitions.is_empty()
    }

    /// True if its work succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.state_transitions.iter().any(|moved| moved.to == ExecutionState::Completed)
    }

    /// True if the execution has started and its work has not ended.
    pub fn is_active(&self) -> bool {
        matches!(self.state, ExecutionState::Starting | ExecutionState::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn failed(category: ErrorCategory, max_retries: u32) -> AgentExecution {
        let mut execution = AgentExecution::new(
            ExecutionId::from_random_bytes([1; 16]),
            "greeter".parse().unwrap(),
            TaskId::from_random_bytes([2; 16]),
            max_retries,
        );
        execution.advance(ExecutionTransition::Start, at(1)).unwrap();
        execution.advance(ExecutionTransition::Run, at(2)).unwrap();
        execution.fail(AttemptFailure { category, message: "no".into() }, at(3)).unwrap();
        execution
    }

    #[test]
    fn a_transient_failure_is_retried_until_none_are_left() {
        let mut execution = failed(ErrorCategory::Transient, 1);
        assert!(execution.may_retry(ErrorCategory::Transient));
        execution.retry(at(4)).unwrap();
        assert_eq!(execution.state, ExecutionState::Starting);
        assert_eq!((execution.start_time, execution.end_time), (Some(at(1)), None));
        let again = AttemptFailure { category: ErrorCategory::Transient, message: "no".into() };
        execution.fail(again, at(5)).unwrap();
        assert_eq!(execution.retry(at(6)), Err(RetryRefused::NoneLeft(1)));
        execution.advance(ExecutionTransition::CleanUp, at(7)).unwrap();
        execution.advance(ExecutionTransition::Finish, at(8)).unwrap();
        assert_eq!(execution.previous_state, ExecutionState::Cleanup);
        let path: Vec<_> = execution.state_transitions.iter().map(|t| t.to.label()).collect();
        assert_eq!(
            path,
            ["starting", "running", "failed", "starting", "failed", "cleanup", "idle"]
        );
    }

    #[test]
    fn other_failures_are_never_retried() {
        for category in
            [ErrorCategory::Permanent, ErrorCategory::AgentError, ErrorCategory::SystemError]
        {
            let mut execution = failed(category, 3);
            assert!(!execution.may_retry(category));
            assert_eq!(execution.retry(at(4)), Err(RetryRefused::NotTransient(category)));
            assert_eq!(execution.state, ExecutionState::Failed);
        }
    }

    #[test]
    fn a_running_execution_cannot_be_retried() {
        let mut execution = failed(ErrorCategory::Transient, 3);
        execution.retry(at(4)).unwrap();
        let refused = execution.retry(at(5)).unwrap_err();
        insta::assert_snapshot!(refused, @"an execution that is starting cannot retry; legal here: run, fail");
    }
}
