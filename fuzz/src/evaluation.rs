//! Conditions, templates and charts: the languages that definitions are written in.

use std::borrow::Cow;

use polity_definition::{ConditionExpression, EvaluationScope, Template};
use polity_statechart::{Chart, ChartInstance};
use serde_json::json;

/// Compiles a CEL condition and evaluates it.
pub(crate) fn condition(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Ok(condition) = ConditionExpression::try_from(text) {
        with_scope(|scope| drop(condition.evaluate(scope)));
    }
}

/// Compiles a template and renders it.
pub(crate) fn template(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Ok(template) = Template::try_from(text) {
        with_scope(|scope| drop(template.render(scope)));
    }
}

/// Compiles a chart with its guards and actions.
pub(crate) fn chart(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Chart::from_text(&text) {
        Ok(chart) => drop(ChartInstance::new(chart.into())),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

fn with_scope(run: impl FnOnce(&EvaluationScope<'_>)) {
    let metadata = json!({"topic": "x", "count": 3, "list": [1, 2.5, null, {"a": true}]});
    let metadata = metadata.as_object().cloned().unwrap_or_default();
    run(&EvaluationScope {
        input: "input text",
        last: "the last message",
        messages: &[],
        newest: None,
        next_action: None,
        current_agent: "writer",
        routing_key: Some("approve"),
        metadata: Cow::Owned(metadata),
        outputs: vec![("draft", "{\"score\": 7}"), ("plan", "1. one\n2. two")],
    });
}
