//! The time of a tool's next attempt has come. The runtime drives it after the wait that the failed
//! attempt asked for; coming early waits for the rest of the time.

use polity_model::ids::ToolCallId;
use polity_model::machine::tool_call::CallState;

use super::acting::Acting;
use super::{cancel_with, out_of_place, view};
use crate::decide::{CommandRejection, Decision, DecisionContext};
use crate::state::TaskState;

/// The time has come.
#[derive(Debug, Clone, Copy)]
pub struct RetryTool {
    /// The call.
    pub call_id: ToolCallId,
}

impl RetryTool {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        let place = state.calls().index(self.call_id).zip(state.calls().get(self.call_id));
        let waiting = place.filter(|(_, call)| call.state == CallState::Failed);
        let Some((index, call)) = waiting else { return Err(out_of_place(state, "RetryTool")) };
        if state.cancel_requested() {
            return Ok(cancel_with(state, Vec::new()));
        }
        let now = ctx.now;
        let mut acting = Acting::of(state, ctx)?;
        match (call.retry_at, &call.tool) {
            (Some(until), _) if now < until => acting.wait(self.call_id, until),
            (_, Some(tool)) => {
                acting.call_again(index, self.call_id, tool, None, call.repeatable);
            }
            (_, None) => return Err(out_of_place(state, "RetryTool")),
        }
        Ok(acting.go_on(|index| view(state, index)))
    }
}
