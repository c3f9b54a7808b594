//! The scripted model: answers by rules from a file, deterministically, without key or network. The
//! first rule that matches the newest message wins.

use std::time::Duration;

use polity_definition::{ScriptAnswer, ScriptDefinition, ScriptOutcome, ScriptRole, ScriptRule};
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, ModelFailure, ModelReply, ModelRequest,
};
use polity_model::failure::AttemptFailure;
use polity_model::message::{Message, MessageRole};
use polity_model::usage::{Cost, Usage};
use regex::Captures;
use serde_json::{Map, Value};

use super::error::status_category;
use super::refused;

pub(super) async fn call(
    script: &ScriptDefinition,
    request: ModelRequest<'_>,
) -> Result<ModelReply, ModelFailure> {
    let Some(newest) = request.history.last() else {
        return Err(refused("there is no message to answer".into()));
    };
    let input = request.history.first().map(Message::content).unwrap_or_default();
    let chosen = (0..).zip(&script.rules).find_map(|(index, rule)| {
        match_rule(rule, index, newest, request.marks)
            .map(|captures| (&rule.answer, Some(index), Some(captures)))
    });
    let default = || script.default.as_ref().map(|answer| (answer, None, None));
    let Some((answer, mark, captures)) = chosen.or_else(default) else {
        return Err(refused(format!(
            "no rule of scripts/{} fits the newest message, which is from the {}, \
             and the script has no default",
            script.name,
            newest.role().label()
        )));
    };
    tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
    let fill = ScriptInterpolation { captures: captures.as_ref(), input };
    build_reply(answer, mark, &fill)
}

fn match_rule<'t>(
    rule: &ScriptRule,
    index: u32,
    newest: &'t Message,
    marks: &[u32],
) -> Option<Captures<'t>> {
    if rule.role.is_some_and(|role| message_role(role) != newest.role()) {
        return None;
    }
    let used = marks.iter().filter(|mark| **mark == index).count();
    if rule.times.is_some_and(|times| used >= times.get() as usize) {
        return None;
    }
    rule.when.captures(newest.content())
}

fn message_role(role: ScriptRole) -> MessageRole {
    match role {
        ScriptRole::User => MessageRole::User,
        ScriptRole::Assistant => MessageRole::Assistant,
        ScriptRole::Tool => MessageRole::Tool,
        ScriptRole::System => MessageRole::System,
    }
}

fn build_reply(
    answer: &ScriptAnswer,
    mark: Option<u32>,
    fill: &ScriptInterpolation<'_>,
) -> Result<ModelReply, ModelFailure> {
    match &answer.outcome {
        ScriptOutcome::Message { reply, tool_calls } => Ok(ModelReply {
            content: reply.as_deref().map(|reply| fill.text(reply)).unwrap_or_default(),
            tool_calls: tool_calls
                .iter()
                .map(|call| AskedTool {
                    server: call.tool.server().to_owned(),
                    tool: call.tool.tool().to_owned(),
                    arguments: AskedArguments::Object(fill.object(&call.arguments)),
                    signature: None,
                })
                .collect(),
            usage: Usage::reported(
                Some(answer.input_tokens.unwrap_or(0)),
                Some(answer.output_tokens.unwrap_or(0)),
                Some(Cost::ZERO),
            ),
            ending: AnswerEnding::Complete,
            stop_reason: None,
            mark,
        }),
        ScriptOutcome::Error { status, retry_after_seconds } => Err(ModelFailure {
            retry_after: retry_after_seconds.map(Duration::from_secs),
            is_final: false,
            mark,
            ..ModelFailure::new(AttemptFailure {
                category: status_category(*status),
                message: format!("the scripted model answered with status {status}"),
            })
        }),
    }
}

/// Interpolates captures and the task's input into texts: `$1`, `$name`, `${name}`, `$input`; `$$`
/// is `$`.
struct ScriptInterpolation<'a> {
    captures: Option<&'a Captures<'a>>,
    input: &'a str,
}

impl ScriptInterpolation<'_> {
    fn text(&self, template: &str) -> String {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let (name, behind) = parse_reference(after);
            let value = match name {
                ScriptReference::Escape => Some("$"),
                ScriptReference::Name(name) => self.value(name),
                ScriptReference::Literal => None,
            };
            // An unknown reference stays as written.
            (rest, filled) = match value {
                Some(value) => (behind, filled + value),
                None => (after, filled + "$"),
            };
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, name: &str) -> Option<&str> {
        let captured = self.captures.and_then(|captures| match name.parse::<usize>() {
            Ok(number) if number < captures.len() => {
                Some(captures.get(number).map_or("", |found| found.as_str()))
            }
            Ok(_) => None,
            Err(_) => captures.name(name).map(|found| found.as_str()),
        });
        captured.or_else(|| (name == "input").then_some(self.input))
    }

    fn object(&self, template: &Map<String, Value>) -> Map<String, Value> {
        template.iter().map(|(key, value)| (key.clone(), self.json(value))).collect()
    }

    fn json(&self, template: &Value) -> Value {
        match template {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
        }
    }
}

enum ScriptReference<'a> {
    Escape,
    /// `$name` or `${name}`.
    Name(&'a str),
    /// A `$` without a name.
    Literal,
}

/// Parses the reference after a `$` and returns the remaining text.
fn parse_reference(after: &str) -> (ScriptReference<'_>, &str) {
    if let Some(rest) = after.strip_prefix('$') {
        return (ScriptReference::Escape, rest);
    }
    if let Some((name, rest)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
        return (ScriptReference::Name(name), rest);
    }
    let digits = after.starts_with(|first: char| first.is_ascii_digit());
    let belongs =
        |c: char| if digits { c.is_ascii_digit() } else { c.is_alphanumeric() || c == '_' };
    let end = after.find(|c: char| !belongs(c)).unwrap_or(after.len());
    match after.split_at(end) {
        ("", rest) => (ScriptReference::Literal, rest),
        (name, rest) => (ScriptReference::Name(name), rest),
    }
}

#[cfg(test)]
#[path = "scripted_tests.rs"]
mod tests;
