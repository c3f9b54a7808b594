//! Records the outcome of a run whose owner died. The new owner drives it after looking for the
//! run's output file. A recovered outcome is recorded as by `RecordRun`. A lost run is retried if
//! the agent is repeatable; otherwise a person decides.

use polity_model::failure::{AttemptFailure, ErrorCategory};

use crate::commands::RecordRun;
use crate::decide::cli_run::{
    CutOff, RunDoubt, cli_agent, is_repeatable, open_doubt_review, retry_later,
};
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{DecisionContext, DecisionResult};
use crate::driver::RunOutcome;
use crate::state::TaskState;

/// A run whose owner died.
#[derive(Debug, Clone)]
pub struct RecordRecoveredRun {
    /// The outcome, if the run had ended.
    pub outcome: Option<RunOutcome>,
}

impl RecordRecoveredRun {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        if let Some(outcome) = &self.outcome {
            return RecordRun { outcome: outcome.clone() }.decide(state, ctx);
        }
        let (Some(cli), Some(execution)) =
            (cli_agent(state), state.execution().filter(|execution| execution.is_active()))
        else {
            return Err(unexpected_command(state, "RecordRecoveredRun"));
        };
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        if is_repeatable(cli) && execution.may_retry(ErrorCategory::Transient) {
            let message = "the process that ran it ended".to_owned();
            let failure = AttemptFailure { category: ErrorCategory::Transient, message };
            return Ok(retry_later(execution, &failure, None, ctx, Vec::new()));
        }
        let doubt = RunDoubt::of_run(state, CutOff::Process);
        Ok(open_doubt_review(state, ctx, Vec::new(), doubt))
    }
}
