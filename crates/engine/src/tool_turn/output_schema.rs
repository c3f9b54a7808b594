//! Replies of an agent with an `output_schema`: extraction and correction of their JSON.

use polity_definition::{LlmAgent, OutputSchema};
use polity_model::event::Event;
use polity_model::failure::ErrorCode;
use polity_model::message::Message;

use crate::decide::outcomes::{call_model_for_next_turn, fail_task};
use crate::decide::{Decision, DecisionContext};
use crate::state::TaskState;

/// The number of corrections per task.
pub const OUTPUT_CORRECTIONS_MAX: u32 = 3;

/// The Markdown code fence.
const FENCE: &str = "```";

/// Extracts the JSON of an answer. The error describes the problem for the model.
pub(crate) fn extract_json<'a>(
    schema: &OutputSchema,
    answer: &'a str,
    is_cut: bool,
) -> Result<&'a str, String> {
    let text = unfenced(answer.trim());
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    match serde_json::from_str(text) {
        Ok(value) => schema.check(&value).map(|()| text),
        Err(error) if is_cut => Err(format!(
            "it is longer than an answer may be and was cut off, so it is not JSON ({error}); a \
             shorter one is needed"
        )),
        Err(error) => Err(format!("it is not JSON ({error})")),
    }
}

/// Strips a code fence, which many models cannot leave out.
fn unfenced(text: &str) -> &str {
    let inside = text.strip_prefix(FENCE).and_then(|rest| rest.strip_suffix(FENCE));
    let Some(inside) = inside else { return text };
    let without_language = match inside.get(..4) {
        Some(language) if language.eq_ignore_ascii_case("json") => &inside[4..],
        Some(_) | None => inside,
    };
    without_language.trim()
}

/// Asks the model to correct its reply. Without corrections or turns left, the task fails with the
/// reply as it is.
pub(crate) fn request_correction(
    state: &TaskState,
    llm: &LlmAgent,
    ctx: &mut DecisionContext,
    mut events: Vec<Event>,
    problem: &str,
) -> Decision {
    let turns_max = llm.max_iterations.get();
    if state.corrections() >= OUTPUT_CORRECTIONS_MAX {
        let error = format!(
            "the answer does not fit the agent's output_schema, although the model was told so \
             {OUTPUT_CORRECTIONS_MAX} times: {problem}"
        );
        fail_task(state, &mut events, ErrorCode::InvalidOutput, error);
        return Decision { events, effects: Vec::new() };
    }
    if state.own_turns() + 1 >= turns_max {
        let error = format!(
            "no answer that fits the output_schema after {turns_max} turns, the agent's \
             max_iterations: {problem}"
        );
        fail_task(state, &mut events, ErrorCode::LimitIterations, error);
        return Decision { events, effects: Vec::new() };
    }
    let content = format!(
        "Your answer cannot be used: {problem}. Answer again with nothing but JSON that fits the \
         JSON Schema."
    );
    let message = Message::User { content, timestamp: ctx.now };
    call_model_for_next_turn(state, ctx, events, [Event::MessageAdded { message }])
}

#[cfg(test)]
#[path = "output_schema_tests.rs"]
mod tests;
