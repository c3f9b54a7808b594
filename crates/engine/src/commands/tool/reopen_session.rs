//! Reopens the session of a sub-agent that waited for a person. The runtime drives it when the
//! sub-agent's task continues or ends. It is the counterpart of `RecordSessionWait`. A session that
//! no longer waits is left unchanged, because another process may have reopened it.

use polity_model::ids::ToolCallId;
use polity_model::machine::tool_call::CallState;

use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::{Decision, DecisionContext, DecisionResult};
use crate::state::TaskState;

/// A sub-agent no longer waits for a person.
#[derive(Debug, Clone, Copy)]
pub struct ReopenSession {
    /// The call that the sub-agent answers.
    pub call_id: ToolCallId,
}

impl ReopenSession {
    pub(crate) fn decide(self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let calls = state.calls();
        let found = calls.index(self.call_id).zip(calls.get(self.call_id));
        let waiting = found.filter(|(_, call)| call.state == CallState::Waiting);
        let Some((index, call, tool)) =
            waiting.and_then(|(index, call)| Some((index, call, call.tool.as_ref()?)))
        else {
            // Another process may have reopened the session.
            return Ok(Decision::default());
        };
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.call_again(index, call.id(), tool, call.arguments.clone(), call.repeatable);
        Ok(continue_task(batch))
    }
}
