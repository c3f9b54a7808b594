//! The file format of cassettes: one JSON document, ordered independently of the run.

use std::collections::BTreeMap;

use polity_definition::LlmProvider;
use polity_model::failure::{ErrorCategory, WithheldReason};
use polity_model::number::Temperature;
use polity_model::tool::{ToolName, ToolPattern};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::conversation::CassetteMessage;
use super::multiline::MultilineText;
use super::program_runs::RecordedRun;
use super::remote_messages::RecordedMessage;
use super::reviews::RecordedReview;

/// The format version.
const VERSION: u64 = 1;

/// The recorded answers of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cassette {
    #[serde(rename = "cassette")]
    version: u64,
    /// The agent of the run.
    pub(super) agent: String,
    pub(super) input: MultilineText,
    /// The parameters of the run, with secrets redacted.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) parameters: Map<String, Value>,
    /// The agents that called a model, by name.
    pub(super) agents: BTreeMap<String, ModelSettings>,
    /// The conversations, by session name.
    pub(super) sessions: BTreeMap<String, CassetteSession>,
    /// The listed tools, by name. If a server changes a description during the run, the new one has
    /// a number after its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tools: BTreeMap<String, ListedTool>,
    /// The answers to reviews, in the order in which they were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) reviews: Vec<RecordedReview>,
}

/// The settings that every call of an agent's model has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelSettings {
    pub(super) provider: LlmProvider,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) temperature: Temperature,
    pub(super) system_prompt: MultilineText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Map<String, Value>>,
}

/// A tool as described by its server and the home's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedTool {
    #[serde(default, skip_serializing_if = "MultilineText::is_empty")]
    pub(super) description: MultilineText,
    pub(super) input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Map<String, Value>>,
    pub(super) repeatable: bool,
    pub(super) timeout_seconds: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fallback_tools: Vec<ToolName>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct CassetteSession {
    /// The agent. Unknown if its tools could not be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<String>,
    /// The available tools, after each change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) listings: Vec<ToolListing>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) turns: Vec<CassetteTurn>,
    /// The run of a CLI agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<RecordedRun>,
    /// The messages to a remote agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<RecordedMessage>,
}

/// The tools of an agent from a turn on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolListing {
    pub(super) turn: u32,
    /// The patterns of the agent's definition.
    pub(super) patterns: Vec<ToolPattern>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) offered: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) in_reserve: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<FailedCall>,
}

/// One turn of a conversation: calls of the model, then calls of tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteTurn {
    #[serde(rename = "turn")]
    pub(super) number: u32,
    /// The model calls. A turn has several if the conversation was too long and was sent again
    /// without its middle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) exchanges: Vec<ModelExchange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<CassetteCall>,
}

/// One model call with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelExchange {
    /// The offered tools, if they differ from those of the previous exchange or of the listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<String>>,
    /// The number of messages after the first that are no longer sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) left_out: usize,
    /// The messages since the last answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<CassetteMessage>,
    #[serde(flatten)]
    pub(super) outcome: ModelOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModelOutcome {
    Answer(CassetteAnswer),
    Failure(FailedCall),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteAnswer {
    #[serde(default, skip_serializing_if = "MultilineText::is_empty")]
    pub(super) content: MultilineText,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<CassetteToolRequest>,
    pub(super) usage: Usage,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cut: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_paused: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) withheld: Option<WithheldReason>,
    /// The provider's word for the end of an answer that is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stop_reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteToolRequest {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) server: String,
    pub(super) tool: String,
    #[serde(flatten)]
    pub(super) arguments: CassetteArguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CassetteArguments {
    Arguments(Map<String, Value>),
    Unreadable { text: MultilineText, reason: String },
}

/// A failed call. Some fields apply only to tools, others only to models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FailedCall {
    pub(super) category: ErrorCategory,
    pub(super) message: MultilineText,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) context_full: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) maybe_done: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) timed_out: bool,
    #[serde(default, skip_serializing_if = "Usage::is_zero")]
    pub(super) usage: Usage,
}

/// One tool call with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteCall {
    /// The index of the call in its turn, from 0. A fallback tool has the index of the original
    /// call.
    pub(super) index: usize,
    pub(super) tool: ToolName,
    pub(super) arguments: Map<String, Value>,
    #[serde(flatten)]
    pub(super) outcome: ToolOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolOutcome {
    Reply(CassetteReply),
    Failure(FailedCall),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CassetteReply {
    #[serde(default, skip_serializing_if = "MultilineText::is_empty")]
    pub(super) content: MultilineText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) structured: Option<Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_error: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_cut: bool,
}

/// The number of answers in a cassette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CassetteSize {
    /// Model answers.
    pub model_calls: usize,
    /// Tool replies.
    pub tool_calls: usize,
    /// Runs of CLI agents.
    pub runs: usize,
    /// Messages to remote agents.
    pub messages: usize,
    /// Answers to reviews.
    pub reviews: usize,
}

/// An error while parsing a cassette.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CassetteError {
    /// The document is not a cassette.
    #[error("it is not a cassette")]
    NotACassette,
    /// The end of the document is missing.
    #[error("it is cut short: it ends at line {line}, column {column}")]
    CutShort {
        /// The last line.
        line: usize,
        /// The last column.
        column: usize,
    },
    /// The document is invalid.
    #[error("line {line}, column {column}: {reason}")]
    Unreadable {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// The cause.
        reason: String,
    },
    /// The format version is not supported.
    #[error("it is a cassette of version {found}, and this Polity knows version {VERSION}")]
    UnknownVersion {
        /// Its version.
        found: String,
    },
}

impl Cassette {
    /// Creates an empty cassette for a run of this agent with this input.
    pub fn new(agent: &str, input: &str) -> Self {
        Self {
            version: VERSION,
            agent: agent.to_owned(),
            input: input.to_owned().into(),
            agents: BTreeMap::new(),
            tools: BTreeMap::new(),
            sessions: BTreeMap::new(),
            parameters: Map::new(),
            reviews: Vec::new(),
        }
    }

    /// Sets the parameters of the run. A recorder redacts them.
    #[must_use]
    pub fn with_parameters(self, parameters: Map<String, Value>) -> Self {
        Self { parameters, ..self }
    }

    /// Parses a cassette.
    pub fn parse(text: &str) -> Result<Self, CassetteError> {
        let whole: Value = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        let version = whole.get("cassette").ok_or(CassetteError::NotACassette)?;
        if version.as_u64() != Some(VERSION) {
            return Err(CassetteError::UnknownVersion { found: version.to_string() });
        }
        // Parsed from the text again, which has the line numbers.
        serde_json::from_str(text).map_err(|error| unreadable(&error))
    }

    /// The cassette as file content. Equal cassettes yield equal texts.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The agent of the run.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// The input of the run, with secrets redacted.
    pub fn input(&self) -> &str {
        self.input.as_str()
    }

    /// The parameters of the run, with secrets redacted.
    pub fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }

    /// The number of answers.
    pub fn size(&self) -> CassetteSize {
        let turns = || self.sessions.values().flat_map(|session| &session.turns);
        CassetteSize {
            model_calls: turns().map(|turn| turn.exchanges.len()).sum(),
            tool_calls: turns().map(|turn| turn.calls.len()).sum(),
            runs: self.sessions.values().filter(|session| session.run.is_some()).count(),
            messages: self.sessions.values().map(|session| session.messages.len()).sum(),
            reviews: self.reviews.len(),
        }
    }
}

fn unreadable(error: &serde_json::Error) -> CassetteError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let position = format!(" at line {line} column {column}");
    let reason = text.strip_suffix(&position).unwrap_or(&text);
    let reason = match error.classify() {
        Category::Eof => return CassetteError::CutShort { line, column },
        Category::Syntax => format!("it is not JSON: {reason}"),
        Category::Io | Category::Data => reason.to_owned(),
    };
    CassetteError::Unreadable { line, column, reason }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}
