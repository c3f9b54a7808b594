//! Continues a task after its calls have changed: an agent's turn, or a workflow.

use polity_model::event::Event;
use polity_model::machine::tool_call::CallState;

use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::preconditions::unexpected_command;
use crate::decide::{Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;
use crate::tool_turn::continue_turn;
use crate::workflow::WorkflowDecision;

/// Decides the next step of a task from the states of its calls.
pub(crate) fn continue_task(batch: CallBatch<'_>) -> Decision {
    if let Some(run) = batch.workflow_run() {
        return WorkflowDecision::continue_run(batch, run);
    }
    let state = batch.state();
    continue_turn(batch, |index| CallView::of(state, index))
}

/// Resumes every open call of the current turn: repeats, reviews or waits for it.
pub(crate) fn resume_calls(
    state: &TaskState,
    ctx: &mut DecisionContext,
    first: impl IntoIterator<Item = Event>,
) -> DecisionResult {
    let mut batch = CallBatch::of_state(state, ctx)?;
    first.into_iter().for_each(|event| batch.push(event));
    for (index, call) in state.calls().all().iter().enumerate() {
        let id = call.id();
        match (call.state, &call.tool) {
            // A person approved the call, and it has not started yet.
            (CallState::Asked, Some(tool)) => {
                batch.call_again(index, id, tool, call.arguments.clone(), call.repeatable);
            }
            (CallState::Running | CallState::Waiting, Some(tool)) if call.repeatable => {
                batch.call_again(index, id, tool, call.arguments.clone(), true);
            }
            (CallState::Running, _) => batch.mark_in_doubt(index, id),
            (CallState::Failed, _) => {
                let until = call.backoff.map(|backoff| backoff.until);
                batch.wait_for_retry(id, until.unwrap_or_default());
            }
            // A call is requested, and started, held or refused, within one commit.
            (CallState::Asked, None) | (CallState::Waiting, _) => {
                return Err(unexpected_command(state, "ResumeTask"));
            }
            (CallState::Held | CallState::InDoubt | CallState::Answered, _) => {}
        }
    }
    Ok(continue_task(batch))
}
