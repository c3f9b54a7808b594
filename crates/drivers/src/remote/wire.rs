//! What A2A servers say, read into one form. Tasks have the same fields in 1.0 and in 0.3; the
//! spelling of states differs, and the form of parts and of the events in a stream.

use std::fmt;

use polity_model::remote::RemoteTask;
use polity_model::usage::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How 1.0 begins the names of states.
const STATE_PREFIX: &str = "TASK_STATE_";

/// How many bytes four characters of Base64 stand for, and how many they are.
const BASE64_BYTES: (usize, usize) = (3, 4);

/// A task.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) id: String,
    #[serde(default)]
    context_id: Option<String>,
    pub(super) status: Status,
    #[serde(default)]
    artifacts: Option<Vec<Artifact>>,
    #[serde(default)]
    history: Option<Vec<Message>>,
    #[serde(default)]
    metadata: Option<Value>,
}

/// Where a task is.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Status {
    pub(super) state: State,
    #[serde(default)]
    pub(super) message: Option<Message>,
}

/// A message.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    parts: Vec<Part>,
}

/// Something that came of a task.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Artifact {
    #[serde(default)]
    parts: Vec<Part>,
}

/// A part of a message or an artifact: text, data or a file. In 0.3 a file has an object of its own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Part {
    text: Option<String>,
    data: Option<Value>,
    raw: Option<String>,
    url: Option<String>,
    filename: Option<String>,
    media_type: Option<String>,
    file: Option<File>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    bytes: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    mime_type: Option<String>,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Submitted,
    Working,
    Completed,
    Failed,
    Canceled,
    Rejected,
    InputRequired,
    AuthRequired,
    /// One that is not known here, or that the server does not know.
    Unknown,
}

impl State {
    const ALL: [Self; 9] = [
        Self::Submitted,
        Self::Working,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Unknown,
    ];

    /// The state as 0.3 spells it.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Unknown => "unknown",
        }
    }

    fn of(text: &str) -> Self {
        let plain = text.strip_prefix(STATE_PREFIX).unwrap_or(text);
        let label = plain.to_ascii_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|state| state.label() == label).unwrap_or(Self::Unknown)
    }

    /// Whether the task has come to its end.
    pub(super) fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Submitted
            | Self::Working
            | Self::InputRequired
            | Self::AuthRequired
            | Self::Unknown => false,
        }
    }

    /// Whether the server does nothing more by itself.
    pub(super) fn is_settled(self) -> bool {
        self.is_final() || matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::of(&text))
    }
}

/// What a server makes of a message.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Task(Task),
    Message(Message),
}

/// What a server tells in a stream.
#[derive(Debug, Clone)]
pub(super) enum Told {
    /// The task is in this state now.
    State(State),
    /// A piece of what comes of it.
    Piece(String),
    /// Nothing that matters here.
    Else,
}

/// An answer to a message: a task or a message, in 1.0 by the name of the field, in 0.3 by `kind`.
pub(super) fn reply(mut json: Value) -> Result<Reply, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    if let Some(task) = json.get_mut("task") {
        return serde_json::from_value(task.take()).map(Reply::Task).map_err(unreadable);
    }
    if let Some(message) = json.get_mut("message").filter(|message| message.is_object()) {
        return serde_json::from_value(message.take()).map(Reply::Message).map_err(unreadable);
    }
    match json["kind"].as_str() {
        Some("task") => serde_json::from_value(json).map(Reply::Task).map_err(unreadable),
        Some("message") => serde_json::from_value(json).map(Reply::Message).map_err(unreadable),
        Some(_) | None => Err("it is neither a task nor a message".to_owned()),
    }
}

/// A task by itself.
pub(super) fn task(json: Value) -> Result<Task, String> {
    serde_json::from_value(json).map_err(|error| error.to_string())
}

/// An event of a stream.
pub(super) fn told(mut json: Value) -> Told {
    let event = if json["kind"].is_string() {
        json
    } else {
        let names = ["task", "statusUpdate", "artifactUpdate"];
        let found = names.into_iter().find_map(|name| json.get_mut(name).map(Value::take));
        found.unwrap_or_default()
    };
    if let Some(state) = event["status"]["state"].as_str() {
        return Told::State(State::of(state));
    }
    let artifact = event.get("artifact").cloned().unwrap_or_default();
    match serde_json::from_value::<Artifact>(artifact) {
        Ok(artifact) => Told::Piece(joined(&artifact.parts)),
        Err(_) => Told::Else,
    }
}

impl Task {
    /// The task by the names that the server gave.
    pub(super) fn named(&self) -> RemoteTask {
        RemoteTask { task_id: self.id.clone(), context_id: self.context_id.clone() }
    }

    /// What came of it: its artifacts; else what was said with its state; else what the agent said
    /// last.
    pub(super) fn result(&self) -> String {
        let artifacts = self.artifacts.as_deref().unwrap_or_default();
        let texts: Vec<_> = artifacts
            .iter()
            .map(|artifact| joined(&artifact.parts))
            .filter(|text| !text.is_empty())
            .collect();
        if !texts.is_empty() {
            return texts.join("\n");
        }
        let history = self.history.as_deref().unwrap_or_default();
        let of_agent = |message: &&Message| message.role.to_ascii_lowercase().ends_with("agent");
        let last = self.status.message.as_ref();
        let last = last.or_else(|| history.iter().rev().find(of_agent));
        last.map(Message::text).unwrap_or_default()
    }

    /// What was said with its state, if anything was.
    pub(super) fn said(&self) -> Option<String> {
        let text = self.status.message.as_ref().map(Message::text)?;
        if text.trim().is_empty() { None } else { Some(text) }
    }

    /// What the server says was used of a model, in `metadata.usage`.
    pub(super) fn usage(&self) -> Usage {
        let usage = self.metadata.as_ref().map(|metadata| &metadata["usage"]);
        let count = |name: &str| usage.and_then(|usage| usage[name].as_u64()).unwrap_or_default();
        Usage {
            input_tokens: count("input_tokens"),
            output_tokens: count("output_tokens"),
            ..Usage::default()
        }
    }
}

impl Message {
    /// What it says.
    pub(super) fn text(&self) -> String {
        joined(&self.parts)
    }
}

/// The parts as text. Pieces of a text that came one after the other are one text again; anything
/// else stands on a line of its own.
fn joined(parts: &[Part]) -> String {
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

impl fmt::Display for Part {
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
#[path = "wire_tests.rs"]
mod tests;
