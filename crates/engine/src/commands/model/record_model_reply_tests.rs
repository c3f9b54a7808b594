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
        assert_eq!(task.usage.output_tokens, 2);
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
