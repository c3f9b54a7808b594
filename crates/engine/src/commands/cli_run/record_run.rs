//! Records the end of a CLI agent's run. The runtime drives it with the driver's report;
//! `RecordRecoveredRun` does so for a run whose owner died. A transient failure is retried if
//! retries are left and the agent is repeatable. Any other failure fails the task.

use polity_model::event::{Event, ExecutionChange, ResultRef};
use polity_model::failure::ErrorCode;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;

use crate::decide::cli_run::{cli_agent, fail_answer, failure_code, is_repeatable, retry_later};
use crate::decide::outcomes::{add_answer, cancel_task, ended_execution, execution_event};
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionContext, DecisionResult};
use crate::driver::{RunEnd, RunOutcome};
use crate::state::TaskState;

/// The run has ended.
#[derive(Debug, Clone)]
pub struct RecordRun {
    /// The driver's report.
    pub outcome: RunOutcome,
}

impl RecordRun {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (Some(cli), Some(execution), TaskStatus::Running) =
            (cli_agent(state), state.execution().filter(|e| e.is_active()), state.status())
        else {
            return Err(unexpected_command(state, "RecordRun"));
        };
        let RunOutcome { end, report, usage } = &self.outcome;
        let id = execution.id;
        let mut events = Vec::new();
        // A run that ends at once reports its process together with its end.
        let was_started = execution.state == ExecutionState::Running || report.process_id.is_some();
        if execution.state == ExecutionState::Starting && was_started {
            let process_id = report.process_id;
            events.push(execution_event(id, ExecutionChange::Run { process_id, remote: None }));
        }
        events.push(execution_event(
            id,
            ExecutionChange::Report { report: report.clone().into(), usage: *usage },
        ));
        let failed = |code, error: &String| {
            let (error, partial_result) = (error.clone(), Some(ResultRef::LastAnswer));
            Event::TaskFailed { code, error, partial_result }
        };
        match end {
            RunEnd::Answered(answer) => {
                events.push(add_answer(answer, ctx.now));
                if let Some(over) = ctx.budget.exceeded() {
                    return Ok(fail_answer(id, ErrorCode::Budget, over, events));
                }
                events.extend(ended_execution(id, ExecutionChange::Complete));
                events.push(Event::TaskCompleted { result: ResultRef::LastAnswer });
            }
            RunEnd::Truncated { answer, message } => {
                events.push(add_answer(answer, ctx.now));
                return Ok(fail_answer(id, ErrorCode::Truncated, message, events));
            }
            RunEnd::Failed(failure) => {
                let may_run_again = !was_started || is_repeatable(cli);
                if may_run_again
                    && execution.may_retry(failure.category)
                    && !state.cancel_requested()
                {
                    return Ok(retry_later(execution, failure, None, ctx, events));
                }
                let change = ExecutionChange::Fail { failure: failure.clone(), retry_at: None };
                events.extend(ended_execution(id, change));
                // The run never started because the budget was used up.
                let is_over_budget = !was_started && ctx.budget.reached().is_some();
                let code =
                    if is_over_budget { ErrorCode::Budget } else { failure_code(failure.category) };
                events.push(failed(code, &failure.message));
            }
            RunEnd::TimedOut(message) => {
                events.extend(ended_execution(id, ExecutionChange::TimeOut));
                events.push(failed(ErrorCode::Timeout, message));
            }
            RunEnd::Stopped if was_started => {
                events.extend(ended_execution(id, ExecutionChange::Cancel));
                events.push(Event::TaskCancelled);
            }
            RunEnd::Stopped => return Ok(cancel_task(state, events)),
        }
        Ok(Decision { events, effects: Vec::new() })
    }
}

#[cfg(test)]
#[path = "record_run_tests.rs"]
mod tests;
