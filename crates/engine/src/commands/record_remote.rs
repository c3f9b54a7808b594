//! An agent on another server has taken up the work, or is done with it, or was not reached. The
//! runtime drives it with what the driver reported. Only a message that was not taken is sent again.

use std::time::Duration;

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::ids::CheckpointId;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::review::ReviewSubject;
use polity_model::run::RunReport;
use polity_model::usage::Usage;

use super::programs::{again, code, doubt};
use super::remotes::{of_message, remote};
use super::{cancel_with, moved, out_of_place};
use crate::decide::{CommandRejection, Decision, DecisionContext, Effect};
use crate::driver::{RemoteEnd, RemoteOutcome};
use crate::state::TaskState;

/// The server has made a task of the message.
#[derive(Debug, Clone)]
pub struct RecordRemoteAcceptance {
    /// The task there.
    pub task: RemoteTask,
}

/// Nothing more is to come of the message.
#[derive(Debug, Clone)]
pub struct RecordRemoteOutcome {
    /// What came of it; nothing in time if none.
    pub outcome: Option<RemoteOutcome>,
    /// How long it took.
    pub duration_ms: u64,
}

/// The server was asked to end what no one waits for any more.
#[derive(Debug, Clone)]
pub struct RecordRemoteCancel {
    /// Why it could not be asked, or would not; none if it has agreed.
    pub refusal: Option<String>,
}

impl RecordRemoteAcceptance {
    pub(crate) fn decide(&self, state: &TaskState) -> Result<Decision, CommandRejection> {
        match (remote(state), state.execution()) {
            (Some(_), Some(execution)) if execution.state == ExecutionState::Starting => {
                let remote = Some(self.task.clone());
                let run = ExecutionChange::Run { process_id: None, remote };
                let (events, effects) =
                    (vec![moved(execution.id, run)], vec![Effect::FollowRemote]);
                Ok(Decision { events, effects })
            }
            (Some(_), Some(_) | None) | (None, _) => Err(out_of_place(state, "RecordAccepted")),
        }
    }
}

impl RecordRemoteOutcome {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let (Some(_), Some(execution), TaskStatus::Running) =
            (remote(state), state.execution().filter(|e| e.is_active()), state.status())
        else {
            return Err(out_of_place(state, "RecordRemote"));
        };
        let (end, seen, usage) = if let Some(outcome) = &self.outcome {
            (Some(&outcome.end), outcome.report.clone(), outcome.usage)
        } else {
            let task = execution.remote.clone();
            (None, RemoteReport { task, ..RemoteReport::default() }, Usage::default())
        };
        let id = execution.id;
        let mut events = Vec::new();
        // A message that was answered at once was taken, whatever the answer says.
        let was_taken = match end {
            Some(RemoteEnd::Answered(_) | RemoteEnd::Asks(_)) | None => true,
            Some(RemoteEnd::Failed { .. } | RemoteEnd::InDoubt(_)) => {
                seen.task.is_some() || execution.state == ExecutionState::Running
            }
        };
        if execution.state == ExecutionState::Starting && was_taken {
            let remote = seen.task.clone();
            events.push(moved(id, ExecutionChange::Run { process_id: None, remote }));
        }
        let duration_ms = self.duration_ms;
        let report = RunReport { duration_ms, remote: Some(seen), ..RunReport::default() };
        events.push(moved(id, ExecutionChange::Report { report: report.into(), usage }));
        if state.cancel_requested() && !matches!(end, Some(RemoteEnd::Answered(_))) {
            return Ok(cancelled(state, was_taken, events));
        }
        let put_in_order =
            [moved(id, ExecutionChange::CleanUp), moved(id, ExecutionChange::Finish)];
        let said = |content: &str| {
            let (content, timestamp) = (content.to_owned(), ctx.now);
            let message = Message::Assistant { content, tool_calls: Vec::new(), timestamp };
            Event::MessageAdded { message }
        };
        let failed = |code, error: String| {
            let partial_result = Some(ResultRef::LastAnswer);
            Event::TaskFailed { code, error, partial_result }
        };
        match end {
            Some(RemoteEnd::Answered(answer)) => {
                events.push(said(answer));
                events.push(moved(id, ExecutionChange::Complete));
                events.extend(put_in_order);
                events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
            }
            Some(RemoteEnd::Asks(question)) => {
                events.push(said(question));
                events.push(moved(id, ExecutionChange::Complete));
                events.extend(put_in_order);
                events.extend(ask(state, ctx, question));
            }
            Some(RemoteEnd::Failed { failure, retry_after }) => {
                if !was_taken && execution.may_retry(failure.category) {
                    return Ok(again(execution, failure, *retry_after, ctx, events));
                }
                let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
                events.push(moved(id, change));
                events.extend(put_in_order);
                // One that was not even begun because nothing may be spent any more.
                let is_over_budget = !was_taken && ctx.budget.reached().is_some();
                let code = if is_over_budget { ErrorCode::Budget } else { code(failure.category) };
                events.push(failed(code, failure.message.clone()));
            }
            Some(RemoteEnd::InDoubt(why)) => {
                return Ok(doubt(state, ctx, events, of_message(&execution.agent, why)));
            }
            None => {
                events.push(moved(id, ExecutionChange::TimeOut));
                events.extend(put_in_order);
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

/// Someone has asked for the end meanwhile.
fn cancelled(state: &TaskState, was_taken: bool, mut events: Vec<Event>) -> Decision {
    let (Some(execution), true) = (state.execution(), was_taken) else {
        return cancel_with(state, events);
    };
    let changes = [ExecutionChange::Cancel, ExecutionChange::CleanUp, ExecutionChange::Finish];
    events.extend(changes.map(|change| moved(execution.id, change)));
    events.push(Event::TaskCancelled);
    Decision { events, effects: Vec::new() }
}

/// What the agent asks is put before a person.
fn ask(state: &TaskState, ctx: &mut DecisionContext, question: &str) -> Vec<Event> {
    let Some(execution) = state.execution() else { return Vec::new() };
    let checkpoint_id = CheckpointId::from_random_bytes(ctx.entropy.id_bytes());
    vec![
        Event::CheckpointTaken {
            checkpoint_id,
            sequence: state.checkpoints(),
            node: execution.agent.to_string(),
            awaiting_human: true,
            message_count: None,
        },
        Event::ReviewOpened {
            checkpoint_id,
            subject: ReviewSubject::RemoteQuestion { execution_id: execution.id },
            question: question.to_owned(),
            deadline: None,
            default_action: None,
        },
    ]
}

impl RecordRemoteCancel {
    pub(crate) fn decide(&self, state: &TaskState) -> Result<Decision, CommandRejection> {
        let (Some(task), Some(execution), true) =
            (state.open_remote(), state.execution(), state.status().is_final())
        else {
            return Err(out_of_place(state, "RecordRemoteEnd"));
        };
        let (task, refusal) = (task.clone(), self.refusal.clone());
        let change = ExecutionChange::EndRemote { task, refusal };
        Ok(Decision { events: vec![moved(execution.id, change)], effects: Vec::new() })
    }
}

#[cfg(test)]
#[path = "record_remote_tests.rs"]
mod tests;
