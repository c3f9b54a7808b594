//! An execution as it is shown: its progress and its result.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AgentExecution, ExecutionRun, ExecutionStateChange, RETRIES_UNLIMITED};
use crate::failure::ErrorCategory;
use crate::ids::{ExecutionId, TaskId};
use crate::machine::execution::ExecutionState;
use crate::machine::task::TaskStatus;
use crate::name::Name;
use crate::remote::{RemoteReport, RemoteTask};
use crate::run::{OutputFiles, ProcessExit, ResourceUsage, RunArtifacts, SavedWorkspace};
use crate::task::Task;

/// The outcome of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionStatus {
    /// Its work succeeded.
    Success,
    /// Its work failed.
    Failure,
    /// It took longer than it may.
    Timeout,
    /// It was cancelled.
    Cancelled,
}

/// An execution, to be shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionView {
    /// The execution.
    pub id: ExecutionId,
    /// The agent that runs.
    pub agent_id: Name,
    /// The task it runs for.
    pub task_id: TaskId,
    /// The current status.
    pub state: ExecutionState,
    /// The state before.
    pub previous_state: ExecutionState,
    /// True if it waits for a slot.
    pub queued: bool,
    /// The time of the first start.
    pub start_time: Option<Timestamp>,
    /// The time its work ended.
    pub end_time: Option<Timestamp>,
    /// The time of the last change of `state`.
    pub last_state_change: Option<Timestamp>,
    /// The input, without secrets.
    pub input: String,
    /// The process that runs, or ran last.
    pub process_id: Option<u32>,
    /// The task on another server that does the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_task: Option<RemoteTask>,
    /// The exit code of that process, if it exited by itself.
    pub exit_code: Option<i32>,
    /// Why it failed last.
    pub error_message: Option<String>,
    /// The category of that failure.
    pub error_category: Option<ErrorCategory>,
    /// The number of retries so far.
    pub retry_count: u32,
    /// The retry limit; none if only time limits the retries.
    pub max_retries: Option<u32>,
    /// The time limit in seconds, if there is one.
    pub timeout: Option<u64>,
    /// The resources used.
    pub resource_usage: Option<ResourceUsage>,
    /// Named values that came with the task.
    pub context: Map<String, Value>,
    /// The result, once it is over.
    pub result: Option<ExecutionResult>,
}

/// The result of an execution, or of one of its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionResult {
    /// The execution.
    pub id: ExecutionId,
    /// The agent.
    pub agent_id: Name,
    /// The task.
    pub task_id: TaskId,
    /// The start time.
    pub start_time: Option<Timestamp>,
    /// The end time.
    pub end_time: Option<Timestamp>,
    /// The outcome.
    pub status: ExecutionStatus,
    /// The input, without secrets.
    pub input: String,
    /// The output, without secrets.
    pub output: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The duration, in milliseconds.
    pub execution_time: u64,
    /// The process.
    pub process_id: Option<u32>,
    /// The attempts before.
    pub previous_retries: Vec<ExecutionResult>,
    /// The CLI agent's own session id, if it reported one.
    pub session_id: Option<String>,
    /// The resources used.
    pub resource_usage: Option<ResourceUsage>,
    /// The files with its complete output.
    pub output_files: Option<OutputFiles>,
    /// The saved artifacts.
    pub artifacts: Option<RunArtifacts>,
    /// The run's own workspace, if it is kept.
    pub workspace: Option<SavedWorkspace>,
    /// The outcome of the work on another server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReport>,
    /// Every change of state, oldest first.
    pub state_transitions: Vec<ExecutionStateChange>,
}

impl AgentExecution {
    /// The execution as it is shown, with the task that it runs for.
    pub fn view(&self, task: &Task) -> ExecutionView {
        let last = self.runs.last().map(|run| &run.report);
        let exit = last.and_then(|report| report.exit);
        ExecutionView {
            id: self.id,
            agent_id: self.agent.clone(),
            task_id: self.task_id,
            state: self.state,
            previous_state: self.previous_state,
            queued: self.pool.is_some()
                && self.state_transitions.is_empty()
                && !task.status.is_final(),
            start_time: self.start_time,
            end_time: self.end_time,
            last_state_change: self.last_state_change,
            input: task.description.clone(),
            process_id: self.process_id,
            remote_task: self.remote.clone(),
            exit_code: exit.and_then(|exit| match exit {
                ProcessExit::Code(code) => Some(code),
                ProcessExit::Signal(_) => None,
            }),
            error_message: self.failure.as_ref().map(|failure| failure.message.clone()),
            error_category: self.failure.as_ref().map(|failure| failure.category),
            retry_count: self.retry_count,
            max_retries: Some(self.max_retries).filter(|most| *most != RETRIES_UNLIMITED),
            timeout: self.timeout_seconds,
            resource_usage: last.map(|report| report.resource_usage),
            context: task.parameters.clone(),
            result: self.result(task),
        }
    }

    fn result(&self, task: &Task) -> Option<ExecutionResult> {
        let status = self.status().or_else(|| self.status_while_queued(task))?;
        let (last, earlier) = match self.runs.split_last() {
            Some((last, earlier)) => (Some(last), earlier),
            None => (None, [].as_slice()),
        };
        let failed = match status {
            ExecutionStatus::Failure => match &self.failure {
                Some(failure) => Some(failure.message.clone()),
                None => task.error.clone(),
            },
            ExecutionStatus::Timeout => task.error.clone(),
            ExecutionStatus::Success | ExecutionStatus::Cancelled => None,
        };
        let took = match (self.start_time, self.end_time) {
            (Some(start), Some(end)) => end.duration_since(start).as_millis(),
            (Some(_) | None, _) => 0,
        };
        Some(ExecutionResult {
            id: self.id,
            agent_id: self.agent.clone(),
            task_id: self.task_id,
            start_time: self.start_time,
            end_time: self.end_time.or(task.completed_at),
            status,
            input: task.description.clone(),
            output: task.result.clone().filter(|_| status == ExecutionStatus::Success),
            error: failed,
            execution_time: u64::try_from(took).unwrap_or_default(),
            process_id: self.process_id,
            previous_retries: earlier.iter().map(|run| self.attempt(task, run)).collect(),
            session_id: last.and_then(|run| run.report.session_id.clone()),
            resource_usage: last.map(|run| run.report.resource_usage),
            output_files: last.map(|run| run.report.output.clone()),
            artifacts: last.map(|run| run.report.artifacts.clone()),
            workspace: last.and_then(|run| run.report.workspace.clone()),
            remote: last.and_then(|run| run.report.remote.clone()),
            state_transitions: self.state_transitions.clone(),
        })
    }

    fn attempt(&self, task: &Task, run: &ExecutionRun) -> ExecutionResult {
        let took = jiff::SignedDuration::from_millis(
            i64::try_from(run.report.duration_ms).unwrap_or(i64::MAX),
        );
        ExecutionResult {
            id: self.id,
            agent_id: self.agent.clone(),
            task_id: self.task_id,
            start_time: run.ended_at.checked_sub(took).ok(),
            end_time: Some(run.ended_at),
            status: ExecutionStatus::Failure,
            input: task.description.clone(),
            output: None,
            error: run.failure.as_ref().map(|failure| failure.message.clone()),
            execution_time: run.report.duration_ms,
            process_id: run.report.process_id,
            previous_retries: Vec::new(),
            session_id: run.report.session_id.clone(),
            resource_usage: Some(run.report.resource_usage),
            output_files: Some(run.report.output.clone()),
            artifacts: Some(run.report.artifacts.clone()),
            workspace: run.report.workspace.clone(),
            remote: run.report.remote.clone(),
            state_transitions: Vec::new(),
        }
    }

    /// The outcome if the task ended while the execution was still queued.
    fn status_while_queued(&self, task: &Task) -> Option<ExecutionStatus> {
        if !self.state_transitions.is_empty() {
            return None;
        }
        match task.status {
            TaskStatus::Cancelled => Some(ExecutionStatus::Cancelled),
            TaskStatus::Failed => Some(ExecutionStatus::Failure),
            TaskStatus::Pending
            | TaskStatus::Running
            | TaskStatus::AwaitingHuman
            | TaskStatus::Completed => None,
        }
    }

    /// The outcome, once it is over.
    fn status(&self) -> Option<ExecutionStatus> {
        if !self.is_over() {
            return None;
        }
        self.state_transitions.iter().rev().find_map(|moved| match moved.from {
            ExecutionState::Completed => Some(ExecutionStatus::Success),
            ExecutionState::Failed => Some(ExecutionStatus::Failure),
            ExecutionState::Timeout => Some(ExecutionStatus::Timeout),
            ExecutionState::Cancelled => Some(ExecutionStatus::Cancelled),
            ExecutionState::Idle
            | ExecutionState::Starting
            | ExecutionState::Running
            | ExecutionState::Cleanup => None,
        })
    }
}
