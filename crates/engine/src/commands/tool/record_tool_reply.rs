//! Records a tool's reply. The runtime drives it once per call, in any order. The last answer of a
//! turn leads back to the model. A reply to a task that is being cancelled is recorded too, because
//! the tool has had its effect. `RecordToolFailure` covers calls without a reply.

use std::sync::Arc;

use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::ToolCallId;
use serde_json::Value;

use crate::decide::call_batch::CallBatch;
use crate::decide::continuation::continue_task;
use crate::decide::outcomes::cancel_task;
use crate::decide::preconditions::expect_running_call;
use crate::decide::{DecisionContext, DecisionResult};
use crate::driver::{ToolReply, ToolSpec};
use crate::state::TaskState;
use crate::tool_turn::fallback::call_fallback;

/// A tool replied.
#[derive(Debug, Clone)]
pub struct RecordToolReply {
    /// The call.
    pub call_id: ToolCallId,
    /// The reply.
    pub reply: ToolReply,
    /// The duration of the call.
    pub duration_ms: u64,
}

impl RecordToolReply {
    pub(crate) fn decide(&self, state: &TaskState, ctx: &mut DecisionContext) -> DecisionResult {
        let (index, call) = expect_running_call(state, self.call_id, "RecordToolReply")?;
        let toolbox = Arc::clone(&ctx.toolbox);
        let tool = call.tool.as_ref().and_then(|tool| toolbox.find(tool.server(), tool.tool()));
        let mut batch = CallBatch::of_state(state, ctx)?;
        batch.set_error_code(self.reply.code);
        let ToolReply { content, structured, is_error, .. } = &self.reply;
        let problem = tool.and_then(|tool| misfit(tool, &self.reply));
        if *is_error {
            let category = ErrorCategory::AgentError;
            let failure = AttemptFailure { category, message: content.clone() };
            let may_go_on = !state.cancel_requested();
            if !(may_go_on && call_fallback(&mut batch, index, call, failure, self.duration_ms)) {
                batch.answer_with_error(index, self.call_id, content.clone(), self.duration_ms);
            }
        } else if let Some(problem) = problem {
            // The tool has done its work, so no fallback is called.
            batch.answer_with_error(index, self.call_id, problem, self.duration_ms);
        } else {
            let structured = structured.clone().filter(|json| !is_same(content, json));
            batch.answer(index, self.call_id, content.clone(), structured, self.duration_ms);
        }
        if state.cancel_requested() {
            return Ok(cancel_task(state, batch.into_events()));
        }
        Ok(continue_task(batch))
    }
}

/// Returns the problem of a result that violates the tool's output schema.
fn misfit(tool: &ToolSpec, reply: &ToolReply) -> Option<String> {
    tool.output_schema.as_ref()?;
    let ToolReply { content, structured, is_cut, .. } = reply;
    let problem = match structured {
        // A truncated result cannot be validated.
        None if *is_cut => return None,
        None => "there is no structured result".to_owned(),
        Some(result) => tool.check_result(result).err()?,
    };
    Some(format!(
        "error: {} was called, and its result does not fit its own output schema: {problem}; the \
         result was: {content}",
        tool.name
    ))
}

/// True if the text is the same JSON value, which then need not be stored twice.
fn is_same(text: &str, json: &Value) -> bool {
    text.starts_with(['{', '[', '"'])
        && serde_json::from_str::<Value>(text).is_ok_and(|v| v == *json)
}

#[cfg(test)]
mod tests {
    use polity_model::message::Message;

    use super::*;
    use crate::decide::fixtures::prelude::*;

    fn tool_reply(content: &str) -> ToolReply {
        ToolReply { content: content.to_owned(), ..ToolReply::default() }
    }

    fn record(state: &TaskState, index: usize, reply: ToolReply) -> Decision {
        let answer = RecordToolReply { call_id: call_id(state, index), reply, duration_ms: 3 };
        answer.decide(state, &mut test_context()).unwrap()
    }

    #[test]
    fn answers_are_ordered_and_lead_to_the_model() {
        let mut state = turn_with_calls(&["files/read", "files/write", "files/read"]);
        for (index, last) in [(2, false), (0, false), (1, true)] {
            let decision = record(&state, index, tool_reply(&format!("answer {index}")));
            assert_eq!(decision.effects == [Effect::CallModel], last);
            let before = state.messages().len();
            state = with(state, decision.events);
            let grown = state.messages().len() - before;
            assert_eq!(grown, if last { 3 } else { 0 }, "no call is there without its answer");
        }
        let messages = state.messages();
        let answers: Vec<_> = messages[2..].iter().map(Message::content).collect();
        assert_eq!(answers, ["answer 0", "answer 1", "answer 2"]);
    }

    #[test]
    fn result_violating_the_output_schema_is_reported() {
        let state = turn_with_calls(&["time/now"]);
        let id = call_id(&state, 0);
        for (structured, expected) in
            [(None, "there is no structured result"), (Some(json!({"minutes": 3})), "seconds")]
        {
            let decision = record(&state, 0, ToolReply { structured, ..tool_reply("3") });
            let content = answer_to(&decision, id).unwrap();
            assert!(
                content.contains(expected) && content.ends_with("the result was: 3"),
                "{content}"
            );
        }
        let fits =
            ToolReply { structured: Some(json!({"seconds": 3})), ..tool_reply("{\"seconds\": 3}") };
        let decision = record(&state, 0, fits);
        let kept_once = matches!(
            decision.events[0],
            Event::ToolChanged {
                change: ToolChange::Answer { structured: None, is_error: false, .. },
                ..
            }
        );
        assert!(kept_once, "{decision:?}");
    }

    #[test]
    fn error_reply_goes_to_the_fallback() {
        let failed = || ToolReply { is_error: true, ..tool_reply("no such file") };
        let state = turn_with_calls(&["files/read", "files/write"]);
        let decision = record(&state, 0, failed());
        assert_eq!(labels(&decision), ["tool_failed", "tool_called"]);
        let tool = with(state.clone(), decision.events).calls().all()[0].tool.clone();
        assert_eq!(tool.unwrap().as_str(), "web/fetch");
        let decision = record(&state, 1, failed());
        assert_eq!(answer_to(&decision, call_id(&state, 1)).as_deref(), Some("no such file"));
    }

    #[test]
    fn reply_is_recorded_during_a_cancel() {
        let state = turn_with_calls(&["files/write", "files/write"]);
        let state = with(state, vec![Event::CancelRequested]);
        let decision = record(&state, 0, tool_reply("written"));
        assert_eq!(answer_to(&decision, call_id(&state, 0)).as_deref(), Some("written"));
        let other = answer_to(&decision, call_id(&state, 1)).unwrap();
        assert!(other.contains("it may have had its effect"), "{other}");
        let state = with(state, decision.events);
        assert_eq!(state.status().to_string(), "cancelled");
        assert_eq!(state.messages().len(), 4);
    }

    #[test]
    fn only_running_calls_are_answered() {
        let state = turn_with_calls(&["files/read", "files/write"]);
        let id = call_id(&state, 0);
        let state = with(state.clone(), record(&state, 0, tool_reply("a")).events);
        let again = RecordToolReply { call_id: id, reply: tool_reply("b"), duration_ms: 1 };
        for state in [state, running()] {
            assert_rejected!(again.decide(&state, &mut test_context()), UnexpectedCommand);
        }
    }
}
