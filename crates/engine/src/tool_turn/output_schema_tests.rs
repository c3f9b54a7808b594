use polity_definition::AgentDefinition;
use polity_model::message::MessageRole;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::commands::{FailureCause, RecordModelFailure};
use crate::decide::fixtures::prelude::*;
use crate::driver::{ModelFailure, ModelReply};

/// A task whose agent must reply with a name and an age.
fn asked(max_iterations: u32) -> TaskState {
    let schema = json!({"type": "object", "required": ["name", "age"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}});
    let mut agent: Value = serde_json::from_str(&pinned().agent.canonical_json()).unwrap();
    agent["output_schema"] = schema;
    agent["max_iterations"] = max_iterations.into();
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    running_with(&PinnedAgent::alone(Arc::new(agent), pinned().script))
}

fn record(state: &TaskState, reply: ModelReply) -> Decision {
    RecordModelReply { reply, duration_ms: 1 }.decide(state, &mut test_context()).unwrap()
}

fn after(state: TaskState, reply: ModelReply) -> TaskState {
    let events = record(&state, reply).events;
    with(state, events)
}

/// The correction that the model reads.
fn correction(decision: &Decision) -> &str {
    match &decision.events[1] {
        Event::MessageAdded { message } => message.content(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn valid_json_is_the_result_without_its_fence() {
    for answer in [
        r#"{"name": "Ada", "age": 36}"#,
        "\n {\"name\": \"Ada\", \"age\": 36} \n",
        "```\n{\"name\": \"Ada\", \"age\": 36}\n```",
        "```json\n{\"name\": \"Ada\", \"age\": 36}\n```\n",
        "```JSON {\"name\": \"Ada\", \"age\": 36}```",
    ] {
        let task = after(asked(10), reply(answer)).snapshot();
        assert_eq!(task.status.to_string(), "completed", "{answer}");
        assert_eq!(task.result.as_deref(), Some(r#"{"name": "Ada", "age": 36}"#), "{answer}");
    }
}

#[test]
fn invalid_json_is_sent_back_for_correction() {
    for (answer, problem) in [
        ("Ada is 36.", "it is not JSON (expected value at line 1 column 1)"),
        ("", "it is empty"),
        ("```json\n```", "it is empty"),
        (r#"{"name": "Ada"}"#, "at the top level: the property \"age\" is missing"),
        (r#"{"name": "Ada", "age": "36"}"#, "/age: \"36\" is a string, expected integer"),
        ("Here it is: ```{}```", "it is not JSON (expected value at line 1 column 1)"),
        ("```yaml\nname: Ada\n```", "it is not JSON (expected value at line 1 column 1)"),
    ] {
        let decision = record(&asked(10), reply(answer));
        assert_eq!(labels(&decision), ["model_answered", "message_added", "model_called"]);
        assert_eq!(decision.effects, [Effect::CallModel]);
        let expected = format!(
            "Your answer cannot be used: {problem}. Answer again with nothing but JSON that fits \
             the JSON Schema."
        );
        assert_eq!(correction(&decision), expected, "{answer}");
        let state = with(asked(10), decision.events);
        assert_eq!((state.corrections(), state.turn()), (1, 2));
        let messages = state.messages();
        assert_eq!(messages[1].content(), answer, "the answer is stored unchanged");
        let task = after(state, reply(r#"{"name":"Ada","age":36}"#)).snapshot();
        assert_eq!(task.result.as_deref(), Some(r#"{"name":"Ada","age":36}"#));
    }
}

#[test]
fn truncated_reply_is_reported() {
    let cut = ModelReply { ending: AnswerEnding::Truncated, ..reply(r#"{"name": "Ada", "#) };
    let decision = record(&asked(10), cut);
    insta::assert_snapshot!(
        correction(&decision),
        @"Your answer cannot be used: it is longer than an answer may be and was cut off, so it is not JSON (EOF while parsing a value at line 1 column 15); a shorter one is needed. Answer again with nothing but JSON that fits the JSON Schema."
    );
}

#[test]
fn corrections_run_out() {
    let mut state = asked(10);
    for number in 1..=OUTPUT_CORRECTIONS_MAX {
        state = after(state, reply("no"));
        assert_eq!((state.status().to_string().as_str(), state.corrections()), ("running", number));
    }
    let task = after(state, reply("never")).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::InvalidOutput));
    insta::assert_snapshot!(
        task.error.unwrap(),
        @"the answer does not fit the agent's output_schema, although the model was told so 3 times: it is not JSON (expected ident at line 1 column 2)"
    );
    assert_eq!(task.result.as_deref(), Some("never"));
}

#[test]
fn corrections_count_towards_max_iterations() {
    let state = after(asked(2), reply("no"));
    let task = after(state, reply("[]")).snapshot();
    assert_eq!(task.error_code, Some(ErrorCode::LimitIterations));
    let error = task.error.unwrap();
    assert!(error.contains("after 2 turns") && error.contains("[] is an array"), "{error}");
}

#[test]
fn cancel_takes_precedence_over_correction() {
    let state = with(asked(10), vec![Event::CancelRequested]);
    let decision = record(&state, reply("no"));
    assert_eq!(decision.effects, []);
    assert_eq!(with(state, decision.events).status().to_string(), "cancelled");
}

#[test]
fn text_beside_tool_calls_is_not_validated() {
    let state =
        after(asked(10), ModelReply { content: "Let me see.".into(), ..asks_for(&["files/read"]) });
    let call_id = call_id(&state, 0);
    let read = ToolReply { content: "Ada, 36".into(), ..ToolReply::default() };
    let answer = RecordToolReply { call_id, reply: read, duration_ms: 1 };
    let events = answer.decide(&state, &mut test_context()).unwrap().events;
    let state = after(with(state, events), reply("Ada is 36."));
    assert_eq!((state.corrections(), state.turn()), (1, 3));
}

#[test]
fn resume_after_a_correction_calls_the_model() {
    let state = after(asked(10), reply("no"));
    let decision = ResumeTask.decide(&state, &mut test_context()).unwrap();
    assert_eq!(labels(&decision), ["task_resumed", "model_failed", "model_called"]);
    let state = with(state, decision.events);
    assert_eq!(state.corrections(), 1);
    assert_eq!(state.history().last().map(Message::role), Some(MessageRole::User));
}

#[test]
fn history_with_corrections_can_be_shortened() {
    let state = after(after(asked(10), reply("no")), reply("still no"));
    let failure = AttemptFailure { category: ErrorCategory::Permanent, message: "too long".into() };
    let failure = ModelFailure { context_full: true, ..ModelFailure::new(failure) };
    let failed = RecordModelFailure { failure, cause: FailureCause::Model, duration_ms: 1 };
    let state = step(state, |state, ctx| failed.decide(state, ctx));
    let sent: Vec<_> = state.history().iter().map(Message::content).collect();
    assert_eq!((sent[0], sent[1]), ("Ada", "still no"));
    let task = after(state, reply(r#"{"name":"Ada","age":36}"#)).snapshot();
    assert_eq!(task.status.to_string(), "completed");
}

#[test]
fn agent_without_schema_accepts_any_text() {
    let task = after(running(), reply("```json\n{}\n```")).snapshot();
    assert_eq!(task.result.as_deref(), Some("```json\n{}\n```"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,8}|.{0,8}|```".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Every accepted reply equals the intended value, and every refused one violates the schema.
    #[test]
    fn accepts_exactly_the_valid_replies(
        value in any_json(),
        pretty in any::<bool>(),
        before in "[ \n]{0,2}(```(json|JSON)?[ \n]{1,2})?",
    ) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let after = if before.contains('`') { "\n``` " } else { "" };
        let reply_text = format!("{before}{text}{after}");
        let anything = OutputSchema::new(Map::new()).unwrap();
        prop_assert_eq!(extract_json(&anything, &reply_text, false), Ok(text.as_str()));
        let kinds = json!({"type": ["object", "array"]}).as_object().unwrap().clone();
        match extract_json(&OutputSchema::new(kinds).unwrap(), &reply_text, false) {
            Ok(json) => prop_assert_eq!(serde_json::from_str::<Value>(json).unwrap(), value),
            Err(_) => prop_assert!(!value.is_object() && !value.is_array()),
        }
    }
}
