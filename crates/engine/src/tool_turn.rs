//! A turn in which the agent calls tools.
//!
//! All allowed calls run concurrently. A call that needs a person is reviewed once no other call
//! is in progress, one review at a time. If only sub-agents that wait for a person are left, the
//! task pauses with them. When every call is answered, the model is called again.

pub(crate) mod fallback;
pub(crate) mod output_schema;
pub(crate) mod requested_calls;

use polity_model::event::Event;
use polity_model::machine::tool_call::CallState;

use crate::decide::Decision;
use crate::decide::call_batch::{CallBatch, CallView};

/// Continues an agent's turn from the states of its calls. `view` returns the call at an index.
pub(crate) fn continue_turn<'v>(
    mut batch: CallBatch<'_>,
    view: impl Fn(usize) -> Option<CallView<'v>>,
) -> Decision {
    if batch.has_calls_in_progress() {
        return batch.into_decision([]);
    }
    let first = |state| batch.call_states().iter().position(|call| *call == state);
    // Uncertain calls come first: their outcome may change the reviewer's decision on other calls.
    let (doubt, held) = (first(CallState::InDoubt), first(CallState::Held));
    match (doubt.and_then(&view), held.and_then(&view)) {
        (Some(call), _) => batch.into_review(call, true),
        (None, Some(call)) => batch.into_review(call, false),
        (None, None) if batch.call_states().contains(&CallState::Waiting) => {
            batch.push(Event::TaskPaused);
            batch.into_events_only()
        }
        (None, None) => batch.into_model_call(),
    }
}
