//! Repeats a failed tool call. The runtime drives it when the backoff of the attempt ends.
//! `RetryExecution` does the same for a model call, run or message. A timer that fires early goes
//! back to waiting.

use polity_model::ids::ToolCallId;
use polity_model::machine::tool_call::CallState;

use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::unexpected_command;
use crate::decide::{DecisionContext, DecisionResult};
use crate::state::TaskState;

/// The backoff is over.
#[derive(Debug, Clone, Copy)]
pub struct RetryTool {
    /// The call.
    pub call_id: ToolCallId,
}

impl RetryTool {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let place = state.calls().index(self.call_id).zip(state.calls().get(self.call_id));
        let waiting = place.filter(|(_, call)| call.state == CallState::Failed);
        let Some((index, call)) = waiting else {
            return Err(unexpected_command(state, "RetryTool"));
        };
        if state.cancel_requested() {
            return Ok(cancel_task(state, Vec::new()));
        }
        let now = ctx.now;
        let mut batch = CallBatch::of_state(state, ctx)?;
        match (call.backoff, &call.tool) {
            (Some(backoff), _) if !backoff.is_over(now) => {
                batch.wait_for_retry(self.call_id, backoff.until);
            }
            (_, Some(tool)) => {
                batch.call_again(index, self.call_id, tool, None, call.repeatable);
            }
            (_, None) => return Err(unexpected_command(state, "RetryTool")),
        }
        Ok(continue_task(batch))
    }
}
