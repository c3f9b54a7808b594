use polity_definition::AgentDefinition;

use super::*;
use crate::decide::fixtures::prelude::*;

fn record(state: &TaskState, reply: ModelReply) -> DecisionResult {
    RecordModelReply { reply, duration_ms: 1 }.decide(state, &mut test_context())
}

/// One turn: the model requests a tool, and the tool answers.
fn turn(state: TaskState, tool: &str, text: &str) -> TaskState {
    let events = record(&state, ModelReply { content: text.into(), ..asks_for(&[tool]) });
    let state = with(state, events.unwrap().events);
    if state.calls().all().is_empty() {
        return state;
    }
    let call_id = call_id(&state, 0);
    let reply = ToolReply { content: text.into(), ..ToolReply::default() };
    let answer = RecordToolReply { call_id, reply, duration_ms: 1 };
    step(state, |state, ctx| answer.decide(state, ctx))
}

/// The answer to the one call that was refused.
fn refused_with(decision: &Decision) -> &str {
    match &decision.events[1] {
        Event::ToolChanged {
            change: ToolChange::Answer { content, is_error: true, .. }, ..
        } => content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reply_without_calls_completes_the_task() {
    let decision = record(&running(), reply("Hello, Ada.")).unwrap();
    assert_eq!(
        labels(&decision),
        [
            "model_answered",
            "execution_changed",
            "execution_changed",
            "execution_changed",
            "checkpoint_taken",
            "task_completed"
        ]
    );
    let done = with(running(), decision.events).snapshot();
    assert_eq!(done.result.as_deref(), Some("Hello, Ada."));
}

#[test]
fn calls_are_journaled_before_their_effects() {
    let decision = record(&running(), asks_for(&["files/read", "files/write"])).unwrap();
    assert_eq!(labels(&decision), ["model_answered", "tool_called", "tool_called"]);
    let effects: Vec<_> = decision
        .effects
        .iter()
        .map(|effect| matches!(effect, Effect::CallTool { timeout, .. } if timeout.as_secs() == 7))
        .collect();
    assert_eq!(effects, [true, true]);
    let state = with(running(), decision.events);
    let repeatable: Vec<_> = state.calls().all().iter().map(|call| call.repeatable).collect();
    assert_eq!(repeatable, [true, false]);
}

#[test]
fn wrong_server_is_corrected_if_unambiguous() {
    for name in ["web/read", "read", "elsewhere/read"] {
        let state = with(running(), record(&running(), asks_for(&[name])).unwrap().events);
        let tool = state.calls().all()[0].tool.as_ref().unwrap();
        assert_eq!(tool.as_str(), "files/read", "{name}");
    }
}

#[test]
fn refused_call_is_answered_with_the_reason() {
    for (asked, expected) in [
        ("time/later", "there is no tool time/later; your tools are files/read, files/write"),
        // Fallback tools cannot be requested directly.
        ("web/fetch", "there is no tool web/fetch"),
    ] {
        let decision = record(&running(), asks_for(&[asked])).unwrap();
        assert_eq!(labels(&decision), ["model_answered", "tool_answered", "model_called"]);
        let content = refused_with(&decision);
        assert!(content.contains(expected), "{content}");
        assert_eq!(decision.effects, [Effect::CallModel]);
    }
    let mut invalid = asks_for(&["files/read"]);
    invalid.tool_calls[0].arguments = AskedArguments::Object(serde_json::Map::new());
    let decision = record(&running(), invalid).unwrap();
    let content = refused_with(&decision);
    assert!(content.contains("path") && content.contains("was not called"), "{content}");
    let mut unreadable = asks_for(&["files/read"]);
    unreadable.tool_calls[0].arguments =
        AskedArguments::Unreadable { text: "{path".into(), reason: "cut off".into() };
    let decision = record(&running(), unreadable).unwrap();
    let content = refused_with(&decision);
    assert!(content.contains("not a JSON object (cut off): {path"), "{content}");
}

#[test]
fn approval_waits_for_the_other_calls() {
    let state = turn_with_calls(&["files/delete", "files/read"]);
    assert_eq!(state.status().to_string(), "running");
    let reply = ToolReply { content: "text".into(), ..ToolReply::default() };
    let answer = RecordToolReply { call_id: call_id(&state, 1), reply, duration_ms: 1 };
    let decision = answer.decide(&state, &mut test_context()).unwrap();
    assert_eq!(labels(&decision), ["tool_answered", "checkpoint_taken", "review_opened"]);
    let state = with(state, decision.events);
    assert_eq!((state.status().to_string().as_str(), state.owner()), ("awaiting_human", None));
    let question = &state.review().unwrap().question;
    assert_eq!(question, "greeter wants to call files/delete with {\"path\":\"0\"}");
}

#[test]
fn approval_applies_to_the_resolved_tool() {
    for name in ["files/delete", "delete", "time/delete"] {
        let decision = record(&running(), asks_for(&[name])).unwrap();
        assert_eq!(decision.effects, [], "{name}");
        let state = with(running(), decision.events);
        assert_eq!(state.status().to_string(), "awaiting_human", "{name}");
    }
}

#[test]
fn calls_per_reply_are_limited() {
    let many = vec!["files/read"; TURN_CALLS_MAX + 2];
    let decision = record(&running(), asks_for(&many)).unwrap();
    assert_eq!(decision.effects.len(), TURN_CALLS_MAX);
    let state = with(running(), decision.events.clone());
    let last = answer_to(&decision, call_id(&state, TURN_CALLS_MAX + 1)).unwrap();
    assert!(last.contains("at most 64 tools"), "{last}");
}

#[test]
fn last_turn_fails_with_a_partial_result() {
    let mut state = running();
    for number in 1..=10 {
        let tool = ["files/read", "files/write"][number % 2];
        state = turn(state, tool, &format!("thought {number}"));
    }
    let task = state.snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::LimitIterations));
    assert_eq!(task.result.as_deref(), Some("thought 10"));
    // The tools of the last turn have their answers.
    let messages = state.messages();
    let last = messages.last().unwrap().content();
    assert_eq!(last, "the task ended before the tool was called");
}

#[test]
fn repeated_calls_fail_the_task() {
    let mut state = running();
    for _ in 0..FRUITLESS_TURNS_MAX {
        state = turn(state, "files/read", "the same");
        assert_eq!(state.status().to_string(), "running");
    }
    let task = turn(state, "files/read", "the same").snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::LimitRepeats));
    assert_eq!(
        task.error.as_deref(),
        Some(
            "the model asked for files/read with the same arguments 4 times in a row and got the \
             same answer each time"
        )
    );
    // A request whose answers change may be repeated more often, but not forever.
    let mut state = running();
    for number in 0..REPEATED_TURNS_MAX {
        state = turn(state, "files/read", &number.to_string());
        assert_eq!(state.status().to_string(), "running");
    }
    let task = turn(state, "files/read", "9").snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::LimitRepeats));
}

#[test]
fn empty_reply_fails_the_task() {
    let decision = record(&running(), reply("")).unwrap();
    let task = with(running(), decision.events).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::EmptyAnswer));
}

#[test]
fn reply_is_charged_during_a_cancel() {
    let state = with(running(), vec![Event::CancelRequested]);
    for answer in [reply("Hello"), asks_for(&["files/write"])] {
        let decision = record(&state, answer).unwrap();
        assert_eq!(decision.effects, []);
        let task = with(state.clone(), decision.events).snapshot();
        assert_eq!(task.status.to_string(), "cancelled");
        assert_eq!(task.usage.output_tokens, Some(2));
    }
}

#[test]
fn reply_is_refused_unless_the_model_was_called() {
    for state in [pending(), backing_off(), cancelled(), turn_with_calls(&["files/read"])] {
        let refused = record(&state, reply("x"));
        let expected = matches!(
            refused,
            Err(CommandRejection::UnexpectedCommand { .. } | CommandRejection::Finished { .. })
        );
        assert!(expected, "{refused:?}");
    }
}

/// A running task whose agent has this `on_truncation`, and a schema if one is given.
fn running_under(on_truncation: &str, output_schema: Option<serde_json::Value>) -> TaskState {
    let mut agent: serde_json::Value =
        serde_json::from_str(&pinned().agent.canonical_json()).unwrap();
    agent["on_truncation"] = json!(on_truncation);
    if let Some(schema) = output_schema {
        agent["output_schema"] = schema;
    }
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    running_with(&PinnedAgent::alone(Arc::new(agent), pinned().script))
}

fn ended(content: &str, ending: AnswerEnding, reason: &str) -> ModelReply {
    ModelReply { ending, stop_reason: Some(reason.to_owned()), ..reply(content) }
}

fn outcome(state: TaskState, reply: ModelReply) -> (Option<ErrorCode>, String, Option<String>) {
    let events = record(&state, reply).unwrap().events;
    let task = with(state, events).snapshot();
    (task.error_code, task.error.unwrap_or_default(), task.result)
}

const REFUSED: AnswerEnding = AnswerEnding::Withheld(WithheldReason::Refused);
const FILTERED: AnswerEnding = AnswerEnding::Withheld(WithheldReason::Filtered);

#[test]
fn half_a_sentence_is_not_published() {
    for (ending, reason, code, words) in [
        (AnswerEnding::Truncated, "length", ErrorCode::Truncated, "output limit (length)"),
        (AnswerEnding::Paused, "pause_turn", ErrorCode::Truncated, "not at an output limit (pause"),
        (REFUSED, "refusal", ErrorCode::Refused, "the model refused to answer (refusal)"),
        (FILTERED, "SAFETY", ErrorCode::Filtered, "content filter stopped the answer (SAFETY)"),
    ] {
        for text in ["Half a sente", ""] {
            let cut = ended(text, ending, reason);
            let (found, error, result) = outcome(running_under("fail", None), cut);
            assert_eq!(found, Some(code), "{reason} {text:?}");
            assert!(error.contains(words), "{error}");
            let kept = Some(text).filter(|text| !text.is_empty());
            assert_eq!(result.as_deref(), kept, "the text is kept");
        }
    }
}

#[test]
fn accepted_answer_may_be_cut_but_not_empty() {
    for ending in [AnswerEnding::Truncated, AnswerEnding::Paused, REFUSED, FILTERED] {
        let cut = ended("Half a sente", ending, "x");
        let (code, _, result) = outcome(running_under("accept", None), cut);
        assert_eq!((code, result.as_deref()), (None, Some("Half a sente")));
        let (code, ..) = outcome(running_under("accept", None), ended("", ending, "x"));
        assert!(code.is_some(), "{ending:?}");
    }
}

#[test]
fn continued_answer_is_joined() {
    let mut state = running_under("continue", None);
    for part in ["Once upon ", "a time there "] {
        let cut = ended(part, AnswerEnding::Truncated, "length");
        let decision = record(&state, cut).unwrap();
        assert_eq!(labels(&decision), ["model_answered", "message_added", "model_called"]);
        assert_eq!(decision.effects, [Effect::CallModel]);
        state = with(state, decision.events);
    }
    assert_eq!(state.corrections(), 0, "a continuation is no correction");
    let (code, _, result) = outcome(state, reply("was a fox."));
    assert_eq!((code, result.as_deref()), (None, Some("Once upon a time there was a fox.")));
}

#[test]
fn continued_json_is_checked_as_a_whole() {
    let schema = json!({"type": "object", "required": ["name"]});
    let state = running_under("continue", Some(schema));
    let cut = ended("{\"name\": \"A", AnswerEnding::Truncated, "length");
    let events = record(&state, cut).unwrap().events;
    let (code, _, result) = outcome(with(state, events), reply("da\"}"));
    assert_eq!((code, result.as_deref()), (None, Some("{\"name\": \"Ada\"}")));
}

#[test]
fn continuing_ends_at_max_iterations_with_all_parts() {
    let mut state = running_under("continue", None);
    for _ in 0..9 {
        let cut = ended("a", AnswerEnding::Truncated, "length");
        let events = record(&state, cut).unwrap().events;
        state = with(state, events);
    }
    let (code, error, result) = outcome(state, ended("a", AnswerEnding::Truncated, "length"));
    assert_eq!((code, result.as_deref()), (Some(ErrorCode::Truncated), Some("aaaaaaaaaa")));
    assert!(error.contains("after 10 turns, the agent's max_iterations"), "{error}");
}

#[test]
fn refused_answer_calls_no_tools() {
    let refused = ModelReply { ending: REFUSED, ..asks_for(&["files/write"]) };
    let decision = record(&running(), refused).unwrap();
    assert_eq!(decision.effects, []);
    let task = with(running(), decision.events).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::Refused));
}

#[test]
fn whole_json_in_a_cut_answer_is_taken() {
    let schema = json!({"type": "object", "required": ["name"]});
    let cut = ended("{\"name\": \"Ada\"}", AnswerEnding::Truncated, "length");
    let (code, ..) = outcome(running_under("fail", Some(schema)), cut);
    assert_eq!(code, None);
}
