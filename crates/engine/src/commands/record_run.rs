//! A program was started, or is over. The runtime drives it with what the driver reported, also for
//! a run whose former owner is gone. A transient failure with retries left waits for the next try,
//! if the program may be run again; any other fails the task.

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::{AttemptFailure, ErrorCategory, ErrorCode};
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;

use super::programs::{Doubt, again, code, doubt, may_repeat, program};
use super::{cancel_with, moved, out_of_place};
use crate::decide::{CommandRejection, Decision, DecisionContext};
use crate::driver::{RunEnd, RunOutcome};
use crate::state::TaskState;

/// The program's process runs.
#[derive(Debug, Clone, Copy)]
pub struct RecordProcess {
    /// The process.
    pub process_id: u32,
}

/// The program is over.
#[derive(Debug, Clone)]
pub struct RecordRun {
    /// What came of it.
    pub outcome: RunOutcome,
}

/// What is known of a run whose owner is gone.
#[derive(Debug, Clone)]
pub struct RecordRecoveredRun {
    /// What came of it, if it had come to its end.
    pub outcome: Option<RunOutcome>,
}

impl RecordProcess {
    pub(crate) fn decide(self, state: &TaskState) -> Result<Decision, CommandRejection> {
        match state.execution() {
            Some(execution) if execution.state == ExecutionState::Starting => {
                let run = ExecutionChange::Run { process_id: Some(self.process_id), remote: None };
                Ok(Decision { events: vec![moved(execution.id, run)], effects: Vec::new() })
            }
            Some(_) | None => Err(out_of_place(state, "RecordProcess")),
        }
    }
}

impl RecordRun {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let (Some(cli), Some(execution), TaskStatus::Running) =
            (program(state), state.execution().filter(|e| e.is_active()), state.status())
        else {
            return Err(out_of_place(state, "RecordRun"));
        };
        let RunOutcome { end, report, usage } = &self.outcome;
        let id = execution.id;
        let mut events = Vec::new();
        // One that was over at once tells of its process together with its end.
        let was_started = execution.state == ExecutionState::Running || report.process_id.is_some();
        if execution.state == ExecutionState::Starting && was_started {
            let process_id = report.process_id;
            events.push(moved(id, ExecutionChange::Run { process_id, remote: None }));
        }
        events.push(moved(
            id,
            ExecutionChange::Report { report: report.clone().into(), usage: *usage },
        ));
        let put_in_order =
            [moved(id, ExecutionChange::CleanUp), moved(id, ExecutionChange::Finish)];
        let failed = |code, error: &String| {
            let (error, partial_result) = (error.clone(), Some(ResultRef::LastAnswer));
            Event::TaskFailed { code, error, partial_result }
        };
        match end {
            RunEnd::Answered(answer) => {
                let (content, timestamp) = (answer.clone(), ctx.now);
                let tool_calls = Vec::new();
                let message = Message::Assistant { content, tool_calls, timestamp };
                events.push(Event::MessageAdded { message });
                events.push(moved(id, ExecutionChange::Complete));
                events.extend(put_in_order);
                events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
            }
            RunEnd::Failed(failure) => {
                let may_run_again = !was_started || may_repeat(cli);
                if may_run_again
                    && execution.may_retry(failure.category)
                    && !state.cancel_requested()
                {
                    return Ok(again(execution, failure, None, ctx, events));
                }
                let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
                events.push(moved(id, change));
                events.extend(put_in_order);
                // One that was not even begun because nothing may be spent any more.
                let is_over_budget = !was_started && ctx.budget.reached().is_some();
                let code = if is_over_budget { ErrorCode::Budget } else { code(failure.category) };
                events.push(failed(code, &failure.message));
            }
            RunEnd::TimedOut(message) => {
                events.push(moved(id, ExecutionChange::TimeOut));
                events.extend(put_in_order);
                events.push(failed(ErrorCode::Timeout, message));
            }
            RunEnd::Stopped if was_started => {
                events.push(moved(id, ExecutionChange::Cancel));
                events.extend(put_in_order);
                events.push(Event::TaskCancelled);
            }
            RunEnd::Stopped => return Ok(cancel_with(state, events)),
        }
        Ok(Decision { events, effects: Vec::new() })
    }
}

impl RecordRecoveredRun {
    pub(crate) fn decide(
        &self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        if let Some(outcome) = &self.outcome {
            return RecordRun { outcome: outcome.clone() }.decide(state, ctx);
        }
        let (Some(cli), Some(execution)) =
            (program(state), state.execution().filter(|execution| execution.is_active()))
        else {
            return Err(out_of_place(state, "RecordFoundRun"));
        };
        if state.cancel_requested() {
            return Ok(cancel_with(state, Vec::new()));
        }
        if may_repeat(cli) && execution.may_retry(ErrorCategory::Transient) {
            let message = "the process that ran it ended".to_owned();
            let failure = AttemptFailure { category: ErrorCategory::Transient, message };
            return Ok(again(execution, &failure, None, ctx, Vec::new()));
        }
        Ok(doubt(state, ctx, Vec::new(), Doubt::of_program(&execution.agent)))
    }
}

#[cfg(test)]
#[path = "record_run_tests.rs"]
mod tests;
