//! A sub-agent waits for a person, and later goes on. The runtime drives both, by what becomes of the
//! sub-agent's task. While anything else of the turn is under way the parent works on; when nothing
//! is, it is paused, and belongs to no process until someone resumes it.

use polity_model::ids::ToolCallId;
use polity_model::machine::tool_call::CallState;

use super::acting::Acting;
use super::{cancel_with, expect_running_call, out_of_place, view};
use crate::decide::{Decision, Given, Rejection, llm};
use crate::state::TaskState;

/// A sub-agent waits for a person.
#[derive(Debug, Clone, Copy)]
pub struct RecordSessionWait {
    /// The call that it works for.
    pub call_id: ToolCallId,
}

/// A sub-agent that waited for a person goes on, or has ended.
#[derive(Debug, Clone, Copy)]
pub struct ReopenSession {
    /// The call that it works for.
    pub call_id: ToolCallId,
}

impl RecordSessionWait {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        given: &mut Given,
    ) -> Result<Decision, Rejection> {
        let (index, call) = expect_running_call(state, self.call_id, "RecordSessionWait")?;
        let mut acting = Acting::of(state, llm(state)?, given);
        acting.wait_with_session(index, call.id());
        if state.cancel_requested() {
            return Ok(cancel_with(state, acting.into_events()));
        }
        Ok(acting.go_on(|index| view(state, index)))
    }
}

impl ReopenSession {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        given: &mut Given,
    ) -> Result<Decision, Rejection> {
        let misplaced = || out_of_place(state, "ReopenSession");
        let calls = state.calls();
        let (index, call) =
            calls.index(self.call_id).zip(calls.get(self.call_id)).ok_or_else(misplaced)?;
        let (CallState::Waiting, Some(tool)) = (call.state, &call.tool) else {
            return Err(misplaced());
        };
        let mut acting = Acting::of(state, llm(state)?, given);
        acting.call_again(index, call.id(), tool, call.arguments.clone(), call.repeatable);
        Ok(acting.go_on(|index| view(state, index)))
    }
}
