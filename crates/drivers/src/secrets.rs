//! Secrets that others were given, which must not come back in what they say, nor get into a file.

use std::fmt;
use std::sync::Arc;

use polity_definition::{AgentDefinition, AgentKind, McpServerDefinition};
use polity_engine::driver::{RunOverrides, ToolReply};
use polity_model::failure::AttemptFailure;
use serde_json::{Map, Value};

use crate::environment::Environment;
use crate::{cli, llm, mcp, remote};

/// Values shorter than that, in bytes, are no secrets: they are part of too many other words.
const SECRET_BYTES_MIN: usize = 4;

/// What is shown in place of a secret.
const MASK: &str = "***";

/// Values that are secret: keys, and what was filled into a server's environment. They are never
/// shown.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The longest first: a secret may be part of another.
    spellings: Arc<[String]>,
}

impl Secrets {
    /// What these agents and servers are given of this environment, and what a task gives programs.
    pub fn known_to<'d>(
        agents: impl IntoIterator<Item = &'d AgentDefinition>,
        servers: impl IntoIterator<Item = &'d McpServerDefinition>,
        overrides: &RunOverrides,
        environment: &Environment,
    ) -> Self {
        let keys = agents.into_iter().flat_map(|agent| match &agent.kind {
            AgentKind::Llm(llm) => llm::keys_of(llm, environment),
            AgentKind::Cli(cli) => cli::agent_secrets(cli, overrides, environment),
            AgentKind::Remote(remote) => remote::secrets_of(remote, environment),
        });
        let filled_in = servers.into_iter().flat_map(|server| mcp::secrets_of(server, environment));
        let values: Vec<_> = keys.chain(filled_in).collect();
        Self::new(values.iter().map(String::as_str))
    }

    /// These values, in all spellings in which a server may repeat them.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        // Each line by itself, since what is shown of a text are some of its lines.
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut spellings: Vec<_> = lines
            .filter(|line| line.len() >= SECRET_BYTES_MIN)
            .flat_map(|line| [line.to_owned(), in_json(line)])
            .collect();
        spellings.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spellings.dedup();
        Self { spellings: spellings.into() }
    }

    /// The text without the secrets.
    pub fn removed_from(&self, text: &str) -> String {
        let replaced = |text: String, secret: &String| text.replace(secret, MASK);
        self.spellings.iter().fold(text.to_owned(), replaced)
    }

    /// The text, which may have been cut off in the midst of a secret, without the secrets.
    pub(crate) fn removed_from_piece(&self, text: &str) -> String {
        let text = self.removed_from(text);
        let end = self.longest_part(|secret, at| text.strip_prefix(secret.get(at..)?));
        let text = end.map_or_else(|| text.clone(), |rest| format!("{MASK}{rest}"));
        let beginning =
            self.longest_part(|secret, at| text.strip_suffix(secret.get(..secret.len() - at)?));
        beginning.map_or_else(|| text.clone(), |rest| format!("{rest}{MASK}"))
    }

    /// The reply without the secrets. One without any is passed on as it is.
    pub(crate) fn removed_from_reply(&self, reply: ToolReply) -> ToolReply {
        let is_in = |text: &str| self.spellings.iter().any(|secret| text.contains(secret));
        let content =
            if is_in(&reply.content) { self.removed_from(&reply.content) } else { reply.content };
        let structured = reply.structured.map(|json| self.removed_from_json(json));
        ToolReply { content, structured, ..reply }
    }

    /// The fields without the secrets.
    pub(crate) fn removed_from_fields(&self, fields: Map<String, Value>) -> Map<String, Value> {
        fields
            .into_iter()
            .map(|(name, value)| (self.removed_from(&name), self.removed_from_json(value)))
            .collect()
    }

    pub(crate) fn removed_from_json(&self, json: Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.removed_from(&text)),
            Value::Array(items) => {
                items.into_iter().map(|item| self.removed_from_json(item)).collect()
            }
            Value::Object(fields) => Value::Object(self.removed_from_fields(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) => json,
        }
    }

    /// The failure without the secrets.
    pub(crate) fn removed_from_failure(&self, failure: &AttemptFailure) -> AttemptFailure {
        AttemptFailure { category: failure.category, message: self.removed_from(&failure.message) }
    }

    /// What is left of a text of which `strip` takes a secret without some of its bytes, as few as
    /// possible.
    fn longest_part<'t>(&self, strip: impl Fn(&str, usize) -> Option<&'t str>) -> Option<&'t str> {
        self.spellings.iter().find_map(|secret| {
            (1..=secret.len() - SECRET_BYTES_MIN).find_map(|missing| strip(secret, missing))
        })
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// The text as it is written within a JSON string; many servers log in JSON.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
    inner.unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_told_without_secrets() {
        let secrets = Secrets::new(["s3cret"]);
        let structured = Some(json!({"a s3cret": ["s3cret!", 1]}));
        let content = "the s3cret".to_owned();
        let reply = ToolReply { content, structured, ..ToolReply::default() };
        let reply = secrets.removed_from_reply(reply);
        assert_eq!(reply.content, "the ***");
        assert_eq!(reply.structured, Some(json!({"a ***": ["***!", 1]})));
    }

    #[test]
    fn secrets_are_removed_in_all_spellings() {
        let secrets =
            Secrets::new(["s3cret", "s3cret-and-more", "abc", "a\"b\\c\n", "one1\ntwo2\n"]);
        for (text, expected) in [
            ("no one knows", "no one knows"),
            ("s3cret, s3cret-and-more!", "***, ***!"),
            ("abc is too short", "abc is too short"),
            ("the key a\"b\\c", "the key ***"),
            (r#"{"key": "a\"b\\c"}"#, r#"{"key": "***"}"#),
            ("one1 and two2", "*** and ***"),
        ] {
            assert_eq!(secrets.removed_from(text), expected);
        }
        assert_eq!(format!("{secrets:?}"), "***");
    }

    #[test]
    fn what_is_left_of_a_secret_that_was_cut_is_removed() {
        let secrets = Secrets::new(["0123456789", "grün-grün"]);
        for (text, expected) in [
            ("3456789 is wrong", "*** is wrong"),
            ("789 is wrong", "789 is wrong"),
            ("wrong: 01234567", "wrong: ***"),
            ("456789\n0123456789\n0123", "***\n***\n***"),
            ("n-grün", "***"),
            ("", ""),
        ] {
            assert_eq!(secrets.removed_from_piece(text), expected);
        }
    }
}
