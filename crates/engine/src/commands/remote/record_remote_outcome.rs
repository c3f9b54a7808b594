//! Records the end of a message to a remote agent. The runtime drives it with the driver's outcome,
//! or with the limit that was reached. A question of the agent opens a review. Only a message that was
//! never accepted is sent again; one that may have been accepted is put in doubt.

use polity_definition::Limits;
use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::name::Name;
use polity_model::remote::RemoteReport;
use polity_model::review::ReviewSubject;
use polity_model::run::RunReport;
use polity_model::usage::Usage;

use crate::decide::cli_run::{fail_answer, failure_code, open_doubt_review, retry_later};
use crate::decide::outcomes::{
    add_answer, cancel_task, ended_execution, execution_event, open_review,
};
use crate::decide::preconditions::unexpected_command;
use crate::decide::remote_task::{message_doubt, remote_agent};
use crate::decide::{Decision, DecisionContext, DecisionResult};
use crate::driver::{RemoteEnd, RemoteOutcome};
use crate::state::TaskState;

/// The exchange with the remote agent has ended.
#[derive(Debug, Clone)]
pub struct RecordRemoteOutcome {
    /// The outcome, or the time limit that was reached before.
    pub outcome: Result<RemoteOutcome, RemoteTimeout>,
    /// The duration of the exchange.
    pub duration_ms: u64,
}

/// A time limit of remote work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteTimeout {
    /// All the time of one message: `limits.remote_seconds`.
    Total,
    /// The time without progress: `limits.remote_idle_seconds`.
    Idle,
}

impl RemoteTimeout {
    fn error(self, agent: &Name, limits: &Limits) -> String {
        match self {
            Self::Total => format!(
                "{agent} was not done within {} seconds, which is limits.remote_seconds: raise it in \
                 polity.yaml, or ask for less at once",
                limits.remote_seconds
            ),
            Self::Idle => format!(
                "{agent} showed no progress for {} seconds, which is limits.remote_idle_seconds: \
                 raise it in polity.yaml if the agent works that long in silence",
                limits.remote_idle_seconds
            ),
        }
    }
}

impl RecordRemoteOutcome {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (Some(_), Some(execution), TaskStatus::Running) =
            (remote_agent(state), state.execution().filter(|e| e.is_active()), state.status())
        else {
            return Err(unexpected_command(state, "RecordRemoteOutcome"));
        };
        let (end, seen, usage) = match &self.outcome {
            Ok(outcome) => (Ok(&outcome.end), outcome.report.clone(), outcome.usage),
            Err(timeout) => {
                let task = execution.remote.clone();
                (Err(*timeout), RemoteReport { task, ..RemoteReport::default() }, Usage::default())
            }
        };
        let id = execution.id;
        let mut events = Vec::new();
        // An immediate answer implies acceptance.
        let was_taken = match end {
            Ok(RemoteEnd::Answered(_) | RemoteEnd::Asks(_)) | Err(_) => true,
            Ok(RemoteEnd::Failed { .. } | RemoteEnd::InDoubt(_)) => {
                seen.task.is_some() || execution.state == ExecutionState::Running
            }
        };
        if execution.state == ExecutionState::Starting && was_taken {
            let remote = seen.task.clone();
            events.push(execution_event(id, ExecutionChange::Run { process_id: None, remote }));
        }
        let duration_ms = self.duration_ms;
        let report = RunReport { duration_ms, remote: Some(seen), ..RunReport::default() };
        events.push(execution_event(id, ExecutionChange::Report { report: report.into(), usage }));
        if state.cancel_requested() && !matches!(end, Ok(RemoteEnd::Answered(_))) {
            return Ok(cancelled(state, was_taken, events));
        }
        let failed = |code, error: String| {
            let partial_result = Some(ResultRef::LastAnswer);
            Event::TaskFailed { code, error, partial_result }
        };
        match end {
            Ok(RemoteEnd::Answered(answer)) => {
                events.push(add_answer(answer, ctx.now));
                if let Some(over) = ctx.budget.exceeded() {
                    return Ok(fail_answer(id, ErrorCode::Budget, over, events));
                }
                events.extend(ended_execution(id, ExecutionChange::Complete));
                events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
            }
            Ok(RemoteEnd::Asks(question)) => {
                events.push(add_answer(question, ctx.now));
                events.extend(ended_execution(id, ExecutionChange::Complete));
                let subject = ReviewSubject::RemoteQuestion { execution_id: id };
                events.extend(open_review(state, ctx, subject, question.clone()));
            }
            Ok(RemoteEnd::Failed { failure, retry_after }) => {
                if !was_taken && execution.may_retry(failure.category) {
                    return Ok(retry_later(execution, failure, *retry_after, ctx, events));
                }
                let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
                events.extend(ended_execution(id, change));
                // The message was never sent because the budget was used up.
                let is_over_budget = !was_taken && ctx.budget.reached().is_some();
                let code =
                    if is_over_budget { ErrorCode::Budget } else { failure_code(failure.category) };
                events.push(failed(code, failure.message.clone()));
            }
            Ok(RemoteEnd::InDoubt(why)) => {
                let doubt = message_doubt(&execution.agent, why);
                return Ok(open_doubt_review(state, ctx, events, doubt));
            }
            Err(timeout) => {
                events.extend(ended_execution(id, ExecutionChange::TimeOut));
                let error = timeout.error(&execution.agent, &ctx.limits);
                events.push(failed(ErrorCode::Timeout, error));
            }
        }
        Ok(Decision { events, effects: Vec::new() })
    }
}

/// Cancels the task, including an execution that the server accepted.
fn cancelled(state: &TaskState, was_taken: bool, mut events: Vec<Event>) -> Decision {
    let (Some(execution), true) = (state.execution(), was_taken) else {
        return cancel_task(state, events);
    };
    events.extend(ended_execution(execution.id, ExecutionChange::Cancel));
    events.push(Event::TaskCancelled);
    Decision { events, effects: Vec::new() }
}

#[cfg(test)]
#[path = "record_remote_outcome_tests.rs"]
mod tests;
