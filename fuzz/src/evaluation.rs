//! Conditions, templates, charts and their guards: the languages that definitions are written in.

use std::borrow::Cow;
use std::sync::Arc;

use polity_definition::{ConditionExpression, EvaluationScope, Template};
use polity_statechart::{Chart, ChartInstance, FireContext};
use serde_json::json;

/// The largest result of a template, in bytes.
const RENDERED_BYTES_MAX: usize = 16 << 20;

/// Compiles a CEL condition and evaluates it. The same scope gives the same result.
pub(crate) fn condition(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Ok(condition) = ConditionExpression::try_from(text) {
        with_scope(|scope| {
            let result = || condition.evaluate(scope).map_err(|error| error.to_string());
            assert_eq!(result(), result());
        });
    }
}

/// Compiles a template and renders it. The same scope gives the same text, which has a limit.
pub(crate) fn template(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Ok(template) = Template::try_from(text) {
        with_scope(|scope| {
            let result = || template.render(scope).map_err(|error| error.to_string());
            let first = result();
            assert!(first.as_ref().map_or(0, String::len) <= RENDERED_BYTES_MAX);
            assert_eq!(first, result());
        });
    }
}

/// Compiles a chart with its guards and actions, and fires its triggers.
pub(crate) fn chart(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Chart::from_text(&text) {
        Ok(chart) => fire_all(chart),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Compiles a guard or an action, by the first byte, and fires the transition that has it.
pub(crate) fn expression(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let kind = if first % 2 == 0 { "guard" } else { "action" };
    let mut transition = json!({"trigger": "go", "source": "s", "target": "t"});
    transition[kind] = String::from_utf8_lossy(rest).into();
    let chart = json!({
        "name": "a", "states": ["s", "t"], "initial": "s", "world": {"w": 2},
        "fields": {"x": 1, "y": 0.5, "mood": "calm", "on": true},
        "transitions": [transition, {"trigger": "back", "source": "t", "target": "s"}],
    });
    if let Ok(chart) = Chart::from_document(&chart) {
        fire_all(chart);
    }
}

/// Fires all triggers on two agents, which always agree.
fn fire_all(chart: Chart) {
    const ROUNDS: usize = 3;
    let chart = Arc::new(chart);
    let context = FireContext::new(&chart);
    let mut agents = [(); 2].map(|()| ChartInstance::new(Arc::clone(&chart)));
    for trigger in (0..ROUNDS).flat_map(|_| chart.triggers()) {
        let [first, second] = agents.each_mut().map(|agent| {
            agent.begin_tick(&context);
            let state = agent.fire(trigger, &context);
            (state, format!("{:?} {:?}", agent.take_changes(), agent.take_eval_errors()))
        });
        assert_eq!(first, second);
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
        error: None,
        item: None,
    });
}
