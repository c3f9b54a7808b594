//! A State for tests of conditions and templates.

use std::borrow::Cow;

use jiff::Timestamp;
use polity_model::message::Message;
use serde_json::{Map, Value, json};

use super::EvaluationScope;

/// Calls `test` with a State in which every field has a value.
pub(crate) fn with_scope<T>(test: impl FnOnce(&EvaluationScope<'_>) -> T) -> T {
    let timestamp = Timestamp::UNIX_EPOCH;
    let messages = [Message::User { content: "Write.".into(), timestamp }];
    let newest = Message::Assistant { content: "Drip.".into(), tool_calls: Vec::new(), timestamp };
    let metadata: Map<String, Value> =
        serde_json::from_value(json!({"topic": "rain", "count": 3, "deep": {"list": [1.5, null]}}))
            .unwrap();
    test(&EvaluationScope {
        input: "Write.",
        last: "Drip.",
        messages: &messages,
        newest: Some(&newest),
        next_action: None,
        current_agent: "writer",
        routing_key: None,
        metadata: Cow::Owned(metadata),
        outputs: vec![
            ("draft", "Drip."),
            ("plan", "1. look\n2. buy"),
            ("rating", r#"{"stars": 4, "words": ["wet"]}"#),
        ],
        error: None,
        item: None,
    })
}
