//! Fallback tools: replacements for a tool that failed.

use std::sync::Arc;

use polity_model::failure::AttemptFailure;

use crate::decide::call_batch::CallBatch;
use crate::state::TurnCall;

/// Calls the next fallback of a failed tool. A fallback must accept the same arguments and need no
/// approval. Returns false if there is none.
pub(crate) fn call_fallback(
    batch: &mut CallBatch<'_>,
    index: usize,
    call: &TurnCall,
    failure: AttemptFailure,
    duration_ms: u64,
) -> bool {
    // A person approved this tool and no other.
    if call.allowed {
        return false;
    }
    let (Some(first), Some(failed)) = (&call.first_tool, &call.tool) else { return false };
    let toolbox = Arc::clone(&batch.ctx().toolbox);
    let Some(first) = toolbox.find(first.server(), first.tool()) else { return false };
    let tried = first.fallback_tools.iter().position(|tool| tool == failed).map_or(0, |at| at + 1);
    let next = first.fallback_tools.iter().skip(tried).find_map(|name| {
        let tool = toolbox.find(name.server(), name.tool())?;
        let fits = tool.check_arguments(call.arguments()).is_ok();
        let is_free = !batch.needs_approval(name);
        (fits && is_free).then_some(tool)
    });
    let Some(next) = next else { return false };
    let now = batch.ctx().now;
    batch.record_attempt(index, call.id(), failure, duration_ms, now);
    batch.call(index, call.id(), next, call.arguments.clone());
    true
}
