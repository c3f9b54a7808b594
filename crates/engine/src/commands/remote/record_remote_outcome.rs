//! Records the end of a message to a remote agent. The runtime drives it with the driver's outcome,
//! or with none after a timeout. A question of the agent opens a review. Only a message that was
//! never accepted is sent again; one that may have been accepted is put in doubt.

use std::time::Duration;

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::remote::RemoteReport;
use polity_model::review::ReviewSubject;
use polity_model::run::RunReport;
use polity_model::usage::Usage;

use crate::decide::cli_run::{failure_code, open_doubt_review, retry_later};
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
    /// The outcome; none after a timeout.
    pub outcome: Option<RemoteOutcome>,
    /// The duration of the exchange.
    pub duration_ms: u64,
}

impl RecordRemoteOutcome {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (Some(_), Some(execution), TaskStatus::Running) =
            (remote_agent(state), state.execution().filter(|e| e.is_active()), state.status())
        else {
            return Err(unexpected_command(state, "RecordRemoteOutcome"));
        };
        let (end, seen, usage) = if let Some(outcome) = &self.outcome {
            (Some(&outcome.end), outcome.report.clone(), outcome.usage)
        } else {
            let task = execution.remote.clone();
            (None, RemoteReport { task, ..RemoteReport::default() }, Usage::default())
        };
        let id = execution.id;
        let mut events = Vec::new();
        // An immediate answer implies acceptance.
        let was_taken = match end {
            Some(RemoteEnd::Answered(_) | RemoteEnd::Asks(_)) | None => true,
            Some(RemoteEnd::Failed { .. } | RemoteEnd::InDoubt(_)) => {
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
        if state.cancel_requested() && !matches!(end, Some(RemoteEnd::Answered(_))) {
            return Ok(cancelled(state, was_taken, events));
        }
        let failed = |code, error: String| {
            let partial_result = Some(ResultRef::LastAnswer);
            Event::TaskFailed { code, error, partial_result }
        };
        match end {
            Some(RemoteEnd::Answered(answer)) => {
                events.push(add_answer(answer, ctx.now));
                events.extend(ended_execution(id, ExecutionChange::Complete));
                events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
            }
            Some(RemoteEnd::Asks(question)) => {
                events.push(add_answer(question, ctx.now));
                events.extend(ended_execution(id, ExecutionChange::Complete));
                let subject = ReviewSubject::RemoteQuestion { execution_id: id };
                events.extend(open_review(state, ctx, subject, question.clone()));
            }
            Some(RemoteEnd::Failed { failure, retry_after }) => {
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
            Some(RemoteEnd::InDoubt(why)) => {
                let doubt = message_doubt(&execution.agent, why);
                return Ok(open_doubt_review(state, ctx, events, doubt));
            }
            None => {
                events.extend(ended_execution(id, ExecutionChange::TimeOut));
                let limit = Duration::from_secs(ctx.limits.remote_seconds.get()).as_secs();
                let error = format!(
                    "{} was not done within {limit} seconds, which is limits.remote_seconds: raise \
                     it in polity.yaml, or ask for less at once",
                    execution.agent
                );
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
