//! Decodes the answers of A2A servers. Versions 1.0 and 0.3 share the task fields and differ in the
//! spelling of states, parts and stream events.

use std::fmt;

use polity_model::remote::RemoteTask;
use polity_model::usage::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json_count::json_count;

/// The prefix of states in 1.0.
const STATE_PREFIX: &str = "TASK_STATE_";

/// The ratio of bytes to Base64 characters.
const BASE64_BYTES: (usize, usize) = (3, 4);

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct A2aTask {
    pub(super) id: String,
    #[serde(default)]
    context_id: Option<String>,
    pub(super) status: A2aStatus,
    #[serde(default)]
    artifacts: Option<Vec<A2aArtifact>>,
    #[serde(default)]
    history: Option<Vec<A2aMessage>>,
    #[serde(default)]
    metadata: Option<Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct A2aStatus {
    pub(super) state: A2aState,
    #[serde(default)]
    pub(super) message: Option<A2aMessage>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct A2aMessage {
    #[serde(default)]
    role: String,
    #[serde(default)]
    parts: Vec<A2aPart>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct A2aArtifact {
    #[serde(default)]
    parts: Vec<A2aPart>,
}

/// A part of a message or artifact: text, data or a file. In 0.3 a file is a nested object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct A2aPart {
    text: Option<String>,
    data: Option<Value>,
    raw: Option<String>,
    url: Option<String>,
    filename: Option<String>,
    media_type: Option<String>,
    file: Option<A2aFilePart>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct A2aFilePart {
    bytes: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    mime_type: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aState {
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    Rejected,
    InputRequired,
    AuthRequired,
    /// A state that is unknown here or to the server.
    Unknown,
}

impl A2aState {
    /// All states with their spelling in 0.3.
    const LABELS: [(Self, &'static str); 9] = [
        (Self::Submitted, "submitted"),
        (Self::Working, "working"),
        (Self::Completed, "completed"),
        (Self::Failed, "failed"),
        (Self::Canceled, "canceled"),
        (Self::Rejected, "rejected"),
        (Self::InputRequired, "input-required"),
        (Self::AuthRequired, "auth-required"),
        (Self::Unknown, "unknown"),
    ];

    /// The spelling of 0.3.
    pub(super) fn label(self) -> &'static str {
        Self::LABELS.iter().find(|(state, _)| *state == self).map_or("unknown", |(_, label)| label)
    }

    fn of(text: &str) -> Self {
        let plain = text.strip_prefix(STATE_PREFIX).unwrap_or(text);
        let label = plain.to_ascii_lowercase().replace('_', "-");
        let known = Self::LABELS.iter().find(|(_, known)| *known == label);
        known.map_or(Self::Unknown, |(state, _)| *state)
    }

    /// True if the task has ended.
    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// True if the task has ended or waits for the client.
    pub(super) fn is_settled(self) -> bool {
        self.is_final() || matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

impl<'de> Deserialize<'de> for A2aState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::of(&text))
    }
}

#[derive(Debug, Clone)]
pub(super) enum A2aReply {
    Task(A2aTask),
    Message(A2aMessage),
}

#[derive(Debug, Clone)]
pub(super) enum A2aStreamEvent {
    /// The task changed its state.
    StateChanged(A2aState),
    /// Text of an artifact.
    ArtifactText(String),
    Other,
}

/// Decodes the answer to a message: a task or a message, by field name in 1.0 and by `kind` in 0.3.
pub(super) fn decode_reply(mut json: Value) -> Result<A2aReply, String> {
    let task = |json| decode_task(json).map(A2aReply::Task);
    let message = |json| decode(json).map(A2aReply::Message);
    if let Some(json) = json.get_mut("task") {
        return task(json.take());
    }
    if let Some(json) = json.get_mut("message").filter(|message| message.is_object()) {
        return message(json.take());
    }
    match json["kind"].as_str() {
        Some("task") => task(json),
        Some("message") => message(json),
        Some(_) | None => Err("it is neither a task nor a message".to_owned()),
    }
}

pub(super) fn decode_task(json: Value) -> Result<A2aTask, String> {
    decode(json)
}

fn decode<T: DeserializeOwned>(json: Value) -> Result<T, String> {
    serde_json::from_value(json).map_err(|error| error.to_string())
}

pub(super) fn decode_event(mut json: Value) -> A2aStreamEvent {
    let event = if json["kind"].is_string() {
        json
    } else {
        let names = ["task", "statusUpdate", "artifactUpdate"];
        let found = names.into_iter().find_map(|name| json.get_mut(name).map(Value::take));
        found.unwrap_or_default()
    };
    if let Some(state) = event["status"]["state"].as_str() {
        return A2aStreamEvent::StateChanged(A2aState::of(state));
    }
    let artifact = event.get("artifact").cloned().unwrap_or_default();
    match serde_json::from_value::<A2aArtifact>(artifact) {
        Ok(artifact) => A2aStreamEvent::ArtifactText(join_parts(&artifact.parts)),
        Err(_) => A2aStreamEvent::Other,
    }
}

impl A2aTask {
    /// The ids that the server gave the task.
    pub(super) fn to_remote_task(&self) -> RemoteTask {
        RemoteTask { task_id: self.id.clone(), context_id: self.context_id.clone() }
    }

    /// The text of the artifacts so far.
    pub(super) fn artifact_text(&self) -> String {
        let artifacts = self.artifacts.as_deref().unwrap_or_default();
        let texts: Vec<_> = artifacts
            .iter()
            .map(|artifact| join_parts(&artifact.parts))
            .filter(|text| !text.is_empty())
            .collect();
        texts.join("\n")
    }

    /// The result: the artifacts, else the status message, else the agent's last message.
    pub(super) fn result(&self) -> String {
        let text = self.artifact_text();
        if !text.is_empty() {
            return text;
        }
        let history = self.history.as_deref().unwrap_or_default();
        let is_agents =
            |message: &&A2aMessage| message.role.to_ascii_lowercase().ends_with("agent");
        let last = self.status.message.as_ref();
        let last = last.or_else(|| history.iter().rev().find(is_agents));
        last.map(A2aMessage::text).unwrap_or_default()
    }

    /// The text of the status message, if it has any.
    pub(super) fn status_text(&self) -> Option<String> {
        let text = self.status.message.as_ref().map(A2aMessage::text)?;
        if text.trim().is_empty() { None } else { Some(text) }
    }

    /// The model usage that the server reports in `metadata.usage`. A2A has no field for the cost.
    pub(super) fn usage(&self) -> Usage {
        let usage = self.metadata.as_ref().map(|metadata| &metadata["usage"]);
        let count = |name: &str| usage.and_then(|usage| json_count(&usage[name]));
        Usage::reported(count("input_tokens"), count("output_tokens"), None)
    }
}

impl A2aMessage {
    pub(super) fn text(&self) -> String {
        join_parts(&self.parts)
    }
}

/// Joins the parts as text. Consecutive text parts are concatenated; other parts get a line of
/// their own.
fn join_parts(parts: &[A2aPart]) -> String {
    let mut text = String::new();
    let mut was_text = true;
    for part in parts {
        let is_text = part.text.is_some();
        let goes_on = text.is_empty() || (is_text && was_text);
        if !goes_on {
            text.push('\n');
        }
        text.push_str(&part.to_string());
        was_text = is_text;
    }
    text
}

impl fmt::Display for A2aPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if let Some(data) = &self.data {
            return write!(f, "{data}");
        }
        let nested = self.file.clone().unwrap_or_default();
        let name = self.filename.as_ref().or(nested.name.as_ref());
        let name = name.map_or("without a name", String::as_str);
        let kind = self.media_type.as_ref().or(nested.mime_type.as_ref());
        let kind = kind.map(|kind| format!(", {kind}")).unwrap_or_default();
        let bytes = self.raw.as_ref().or(nested.bytes.as_ref());
        match (self.url.as_ref().or(nested.uri.as_ref()), bytes) {
            (Some(url), _) => write!(f, "[file {name}{kind}: {url}]"),
            (None, Some(base64)) => {
                let bytes = base64.trim_end_matches('=').len() * BASE64_BYTES.0 / BASE64_BYTES.1;
                write!(f, "[file {name}{kind}: {bytes} bytes]")
            }
            (None, None) => write!(f, "[a part of an unknown form]"),
        }
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
