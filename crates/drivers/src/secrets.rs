//! Known secrets, and their redaction in results, errors and files.

use std::fmt;
use std::sync::Arc;

use polity_definition::{AgentDefinition, AgentKind, McpServerDefinition};
use polity_engine::driver::{RunOverrides, ToolReply};
use polity_masking::spellings_of;
use polity_model::failure::AttemptFailure;
use serde_json::{Map, Value};

use crate::environment::EnvSource;
use crate::{cli, llm, mcp, remote};

/// The shortest secret, in bytes. Shorter values occur in too many words.
const SECRET_BYTES_MIN: usize = 4;

/// The replacement of a secret.
const MASK: &str = "***";

/// Secret values: API keys, tokens and values filled into environments. The `Debug` form is
/// redacted.
#[derive(Clone, Default)]
pub struct SecretSet {
    /// Longest first: a secret may be part of another.
    spellings: Arc<[String]>,
}

impl SecretSet {
    /// Collects the secrets that these agents, servers and overrides take from the environment.
    pub fn collect<'d>(
        agents: impl IntoIterator<Item = &'d AgentDefinition>,
        servers: impl IntoIterator<Item = &'d McpServerDefinition>,
        overrides: &RunOverrides,
        environment: &EnvSource,
    ) -> Self {
        let keys = agents.into_iter().flat_map(|agent| match &agent.kind {
            AgentKind::Llm(llm) => llm::api_keys(llm, environment),
            AgentKind::Cli(cli) => cli::agent_secrets(cli, overrides, environment),
            AgentKind::Remote(remote) => remote::secret_values(remote, environment),
        });
        let filled_in =
            servers.into_iter().flat_map(|server| mcp::secret_values(server, environment));
        let values: Vec<_> = keys.chain(filled_in).collect();
        Self::new(values.iter().map(String::as_str))
    }

    /// Creates a set of these values in all spellings that output may contain.
    pub(crate) fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Self {
        // Lines are separate secrets, because excerpts of output consist of lines.
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut spellings: Vec<_> =
            lines.filter(|line| line.len() >= SECRET_BYTES_MIN).flat_map(spellings_of).collect();
        spellings.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        spellings.dedup();
        Self { spellings: spellings.into() }
    }

    /// Redacts the secrets in a text.
    pub fn redact(&self, text: &str) -> String {
        let replaced = |text: String, secret: &String| {
            if text.contains(secret) { text.replace(secret, MASK) } else { text }
        };
        self.spellings.iter().fold(text.to_owned(), replaced)
    }

    /// Redacts the secrets in an excerpt that may start or end within a secret.
    pub(crate) fn redact_fragment(&self, text: &str) -> String {
        let text = self.redact(text);
        let end = self.strip_partial(|secret, at| text.strip_prefix(secret.get(at..)?));
        let text = end.map_or_else(|| text.clone(), |rest| format!("{MASK}{rest}"));
        let beginning =
            self.strip_partial(|secret, at| text.strip_suffix(secret.get(..secret.len() - at)?));
        beginning.map_or_else(|| text.clone(), |rest| format!("{rest}{MASK}"))
    }

    /// Redacts the secrets in a tool reply. A reply without any is not copied.
    pub(crate) fn redact_reply(&self, reply: ToolReply) -> ToolReply {
        let is_in = |text: &str| self.spellings.iter().any(|secret| text.contains(secret));
        let content =
            if is_in(&reply.content) { self.redact(&reply.content) } else { reply.content };
        let structured = reply.structured.map(|json| self.redact_json(json));
        ToolReply { content, structured, ..reply }
    }

    pub(crate) fn redact_fields(&self, fields: Map<String, Value>) -> Map<String, Value> {
        fields
            .into_iter()
            .map(|(name, value)| (self.redact(&name), self.redact_json(value)))
            .collect()
    }

    pub(crate) fn redact_json(&self, json: Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.redact(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(fields) => Value::Object(self.redact_fields(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) => json,
        }
    }

    pub(crate) fn redact_failure(&self, failure: &AttemptFailure) -> AttemptFailure {
        AttemptFailure { category: failure.category, message: self.redact(&failure.message) }
    }

    /// Applies `strip` to the longest partial secret that it matches and returns the remaining
    /// text.
    fn strip_partial<'t>(&self, strip: impl Fn(&str, usize) -> Option<&'t str>) -> Option<&'t str> {
        self.spellings.iter().find_map(|secret| {
            (1..=secret.len() - SECRET_BYTES_MIN).find_map(|missing| strip(secret, missing))
        })
    }
}

impl fmt::Debug for SecretSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redacts_tool_replies() {
        let secrets = SecretSet::new(["s3cret"]);
        let structured = Some(json!({"a s3cret": ["s3cret!", 1]}));
        let content = "the s3cret".to_owned();
        let reply = ToolReply { content, structured, ..ToolReply::default() };
        let reply = secrets.redact_reply(reply);
        assert_eq!(reply.content, "the ***");
        assert_eq!(reply.structured, Some(json!({"a ***": ["***!", 1]})));
    }

    #[test]
    fn redacts_all_spellings() {
        let secrets =
            SecretSet::new(["s3cret", "s3cret-and-more", "abc", "a\"b\\c\n", "one1\ntwo2\n"]);
        for (text, expected) in [
            ("no one knows", "no one knows"),
            ("s3cret, s3cret-and-more!", "***, ***!"),
            ("abc is too short", "abc is too short"),
            ("the key a\"b\\c", "the key ***"),
            (r#"{"key": "a\"b\\c"}"#, r#"{"key": "***"}"#),
            ("one1 and two2", "*** and ***"),
            ("base64 czNjcmV0LWFuZC1tb3Jl", "base64 ***"),
            ("hex 7333637265742d616e642d6d6f7265", "hex ***"),
            ("?key=a%22b%5cc", "?key=***"),
        ] {
            assert_eq!(secrets.redact(text), expected);
        }
        assert_eq!(format!("{secrets:?}"), "***");
    }

    #[test]
    fn redacts_truncated_secrets_at_both_ends() {
        let secrets = SecretSet::new(["0123456789", "grün-grün"]);
        for (text, expected) in [
            ("3456789 is wrong", "*** is wrong"),
            ("789 is wrong", "789 is wrong"),
            ("wrong: 01234567", "wrong: ***"),
            ("456789\n0123456789\n0123", "***\n***\n***"),
            ("n-grün", "***"),
            ("", ""),
        ] {
            assert_eq!(secrets.redact_fragment(text), expected);
        }
    }
}
