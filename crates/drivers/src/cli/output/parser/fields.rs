//! Collects the fields of JSON documents by the parser rules.

use polity_definition::{JsonPick, OutputParser};
use serde_json::Value;

use super::{ANSWER_BYTES_MAX, EventRules, ParsedOutput};
use crate::json_count::json_count;

/// Collects fields from documents. Later documents replace earlier values.
#[derive(Debug, Default)]
pub(crate) struct FieldCollector {
    pub(crate) events: EventRules,
    pub(crate) parsed: ParsedOutput,
    /// The length of the answer before truncation.
    answer_bytes: usize,
}

impl FieldCollector {
    /// Collects the fields of one document and returns the text to show.
    pub(crate) fn collect(&mut self, document: &Value, parser: &OutputParser) -> Option<String> {
        self.parsed.documents += 1;
        let text = |pick: &Option<JsonPick>| pick.as_ref().and_then(|pick| text_at(document, pick));
        let number = |pick: &Option<JsonPick>| json_count(value_at(document, pick.as_ref()?)?);
        let answer = text(&parser.answer);
        let shown = match &parser.shown {
            Some(pick) => text_at(document, pick),
            None => answer.clone(),
        };
        if let Some(answer) = answer {
            self.set_answer(&answer, parser.join_answers);
        }
        let parsed = &mut self.parsed;
        let error = text(&parser.error).filter(|error| !error.trim().is_empty());
        replace(&mut parsed.error, error.filter(|error| error != "false"));
        replace(&mut parsed.status, text(&parser.status));
        replace(&mut parsed.session_id, text(&parser.session_id));
        let (input, output) = (number(&parser.input_tokens), number(&parser.output_tokens));
        let cost = parser.cost.as_ref().and_then(|pick| value_at(document, pick)?.as_f64());
        let cost = cost.filter(|cost| *cost >= 0.0 && cost.is_finite());
        if self.events.sums_usage {
            add(&mut parsed.input_tokens, input, u64::saturating_add);
            add(&mut parsed.output_tokens, output, u64::saturating_add);
            add(&mut parsed.cost_usd, cost.filter(|cost| *cost > 0.0), |a, b| a + b);
        } else {
            replace(&mut parsed.input_tokens, input);
            replace(&mut parsed.output_tokens, output);
            replace(&mut parsed.cost_usd, cost);
        }
        let is_complete = text(&parser.terminal).is_some();
        if is_complete {
            parsed.cut_reason = None;
        }
        let cut_reason = self.events.cut.iter().find_map(|pick| text_at(document, pick));
        parsed.terminal_event_seen |= is_complete || cut_reason.is_some();
        replace(&mut parsed.cut_reason, cut_reason);
        shown
    }

    /// Sets the answer, or appends to it.
    pub(crate) fn set_answer(&mut self, text: &str, is_piece: bool) {
        let stored = self.parsed.answer.get_or_insert_default();
        if !is_piece {
            stored.clear();
            self.answer_bytes = 0;
        }
        self.answer_bytes += text.len();
        let room = ANSWER_BYTES_MAX.saturating_sub(stored.len());
        // After a truncated piece nothing more is appended.
        if stored.len() + text.len() == self.answer_bytes {
            stored.push_str(&text[..text.floor_char_boundary(room)]);
        }
    }

    pub(crate) fn finish(mut self) -> ParsedOutput {
        let kept = self.parsed.answer.as_ref().map_or(0, String::len);
        self.parsed.answer_is_cut = kept < self.answer_bytes;
        self.parsed
    }
}

fn replace<T>(stored: &mut Option<T>, newer: Option<T>) {
    if newer.is_some() {
        *stored = newer;
    }
}

fn add<T: Copy>(stored: &mut Option<T>, more: Option<T>, sum: impl Fn(T, T) -> T) {
    if let Some(more) = more {
        *stored = Some(stored.map_or(more, |stored| sum(stored, more)));
    }
}

/// The value at a pointer, if all conditions hold.
fn value_at<'d>(document: &'d Value, pick: &JsonPick) -> Option<&'d Value> {
    let holds = pick
        .when
        .iter()
        .all(|(at, wanted)| document.pointer(at.as_str()).is_some_and(|value| wanted.is(value)));
    if holds { document.pointer(pick.at.as_str()) } else { None }
}

fn text_at(document: &Value, pick: &JsonPick) -> Option<String> {
    text_of(value_at(document, pick)?)
}

/// A value as text. Lists of message parts are joined.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(inputs) => {
            let texts: Vec<_> = inputs.iter().filter_map(part_text).collect();
            (!texts.is_empty()).then(|| texts.concat())
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Some(value.to_string()),
    }
}

fn part_text(part: &Value) -> Option<&str> {
    part.as_str().or_else(|| part.get("text")?.as_str())
}
