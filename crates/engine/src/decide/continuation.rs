//! Continues a task after its calls have changed: an agent's turn, or a workflow.

use std::sync::Arc;

use polity_model::event::Event;
use polity_model::machine::tool_call::CallState;

use crate::decide::call_batch::{CallBatch, CallView};
use crate::decide::preconditions::unexpected_command;
use crate::decide::{CommandRejection, Decision, DecisionContext, DecisionResult, llm};
use crate::state::TaskState;
use crate::tool_turn::continue_turn;
use crate::tool_turn::requested_calls::{CallRuling, FanOutLimit, check_recorded_call};
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
    resume_open_calls(&mut batch, state)?;
    Ok(continue_task(batch))
}

/// Repeats, reviews or waits for each open call of the current turn. Calls that were not ruled on yet,
/// in a retry, are ruled on now.
pub(crate) fn resume_open_calls(
    batch: &mut CallBatch<'_>,
    state: &TaskState,
) -> Result<(), CommandRejection> {
    let toolbox = Arc::clone(&batch.ctx().toolbox);
    let mut fan_out = FanOutLimit::new(batch.ctx().limits.sub_agent_fan_out);
    for (index, call) in state.calls().all().iter().enumerate() {
        let id = call.id();
        // The request of an inherited call is in another journal.
        let arguments = match call.earlier_sub_task {
            Some(_) => Some(call.arguments().clone()),
            None => call.arguments.clone(),
        };
        match (call.state, &call.tool) {
            // A person approved the call, and it has not started yet.
            (CallState::Asked, Some(tool)) => {
                batch.call_again(index, id, tool, arguments, call.repeatable);
            }
            (CallState::Running | CallState::Waiting, Some(tool)) if call.repeatable => {
                batch.call_again(index, id, tool, arguments, true);
            }
            (CallState::Running, _) => batch.mark_in_doubt(index, id),
            (CallState::Failed, _) => {
                let until = call.backoff.map(|backoff| backoff.until);
                batch.wait_for_retry(id, until.unwrap_or_default());
            }
            // A call is requested, and started, held or refused, within one commit, unless the task
            // ended with it.
            (CallState::Asked, None) if state.is_retry() => {
                let ruling = check_recorded_call(&call.asked, &toolbox, llm(state)?);
                match fan_out.limit(ruling) {
                    CallRuling::Call(tool) => batch.call(index, id, &tool, arguments),
                    CallRuling::Hold(tool) => batch.hold(index, id, tool),
                    CallRuling::Refuse(why) => batch.answer_with_error(index, id, why, 0),
                }
            }
            (CallState::Asked, None) | (CallState::Waiting, _) => {
                return Err(unexpected_command(state, "ResumeTask"));
            }
            (CallState::Held | CallState::InDoubt | CallState::Answered, _) => {}
        }
    }
    Ok(())
}
