//! The form of a cassette: one JSON document, in an order that does not depend on the run.

use std::collections::BTreeMap;

use polity_definition::LlmProvider;
use polity_model::failure::ErrorCategory;
use polity_model::number::Temperature;
use polity_model::tool::{ToolName, ToolPattern};
use polity_model::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::conversation::Said;
use super::lines::Lines;
use super::programs::KeptRun;
use super::remotes::KeptMessage;

/// The form that is described here.
const VERSION: u64 = 1;

/// What models and tools answered in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cassette {
    #[serde(rename = "cassette")]
    version: u64,
    /// The agent that was run.
    pub(super) agent: String,
    pub(super) input: Lines,
    /// The agents that asked a model, by name.
    pub(super) agents: BTreeMap<String, Settings>,
    /// The conversations, by the place in the run at which they began.
    pub(super) sessions: BTreeMap<String, Session>,
    /// The tools that were listed, by name. One that its server describes anew in the midst of a
    /// run has a number behind its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) tools: BTreeMap<String, ListedTool>,
}

/// What an agent's model is told in every call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) provider: LlmProvider,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    pub(super) temperature: Temperature,
    pub(super) system_prompt: Lines,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Map<String, Value>>,
}

/// What a server said of a tool, and what the home's settings did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ListedTool {
    #[serde(default, skip_serializing_if = "Lines::is_empty")]
    pub(super) description: Lines,
    pub(super) input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<Map<String, Value>>,
    pub(super) repeatable: bool,
    pub(super) timeout_seconds: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fallback_tools: Vec<ToolName>,
}

/// One conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Session {
    /// Who speaks. Not known where tools could not even be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<String>,
    /// The tools that there were, each time they changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) listings: Vec<Listing>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) turns: Vec<Turn>,
    /// What the program was given and what came of it, where that is who speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<KeptRun>,
    /// What an agent on another server was told and what came of it, where that is who speaks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<KeptMessage>,
}

/// The tools of an agent from some turn on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Listing {
    pub(super) turn: u32,
    /// What the agent's definition asks for.
    pub(super) patterns: Vec<ToolPattern>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) offered: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) in_reserve: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<FailedCall>,
}

/// One turn of a conversation: the model is asked, and what it asks for is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Turn {
    #[serde(rename = "turn")]
    pub(super) number: u32,
    /// What the model was asked. It is asked more than once in a turn where a conversation is too
    /// long and is sent again without its middle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) exchanges: Vec<Exchange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Call>,
}

/// One question to a model, with what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Exchange {
    /// The names of the tools that were offered, where they are not those of the exchange before or
    /// of the listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<String>>,
    /// How many messages behind the first are not sent any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) left_out: usize,
    /// What was said since the last answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<Said>,
    #[serde(flatten)]
    pub(super) outcome: ModelOutcome,
}

/// What came of a question to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ModelOutcome {
    Answer(Answer),
    Failure(FailedCall),
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    #[serde(default, skip_serializing_if = "Lines::is_empty")]
    pub(super) content: Lines,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Asked>,
    pub(super) usage: Usage,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_cut: bool,
}

/// A tool that a model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) server: String,
    pub(super) tool: String,
    #[serde(flatten)]
    pub(super) arguments: Arguments,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
}

/// The arguments that a model gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arguments {
    Arguments(Map<String, Value>),
    Unreadable { text: Lines, reason: String },
}

/// A call that brought no answer. What it says of tools is only told of tools, and what it says of
/// models only of models.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FailedCall {
    pub(super) category: ErrorCategory,
    pub(super) message: Lines,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) context_full: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) maybe_done: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) timed_out: bool,
}

/// One call of a tool, with what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    /// Which of the calls of its turn this is, from 0. A tool that stands in has the same index.
    pub(super) index: usize,
    pub(super) tool: ToolName,
    pub(super) arguments: Map<String, Value>,
    #[serde(flatten)]
    pub(super) outcome: ToolOutcome,
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolOutcome {
    Reply(Reply),
    Failure(FailedCall),
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    #[serde(default, skip_serializing_if = "Lines::is_empty")]
    pub(super) content: Lines,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) structured: Option<Value>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_error: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_cut: bool,
}

/// How much a cassette holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Answers of models.
    pub model_calls: usize,
    /// Answers of tools.
    pub tool_calls: usize,
    /// Runs of programs.
    pub runs: usize,
    /// Messages to agents on other servers.
    pub messages: usize,
}

/// A text is no cassette that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CassetteError {
    /// It is something else.
    #[error("it is not a cassette")]
    NotACassette,
    /// Its end is missing.
    #[error("it is cut short: it ends at line {line}, column {column}")]
    CutShort {
        /// The last line.
        line: usize,
        /// The last column.
        column: usize,
    },
    /// It cannot be read.
    #[error("line {line}, column {column}: {reason}")]
    Unreadable {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// Why not.
        reason: String,
    },
    /// It has a form that this version does not know.
    #[error("it is a cassette of version {found}, and this Polity knows version {VERSION}")]
    UnknownVersion {
        /// Its version.
        found: String,
    },
}

impl Cassette {
    /// An empty cassette for a run of this agent with this input.
    pub fn new(agent: &str, input: &str) -> Self {
        Self {
            version: VERSION,
            agent: agent.to_owned(),
            input: input.to_owned().into(),
            agents: BTreeMap::new(),
            tools: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Reads a cassette.
    pub fn parse(text: &str) -> Result<Self, CassetteError> {
        let whole: Value = serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        match whole.get("cassette") {
            None => return Err(CassetteError::NotACassette),
            Some(version) if version.as_u64() != Some(VERSION) => {
                return Err(CassetteError::UnknownVersion { found: version.to_string() });
            }
            Some(_) => {}
        }
        // From the text once more, since only that knows the lines.
        serde_json::from_str(text).map_err(|error| unreadable(&error))
    }

    /// The cassette as it is written to a file. The same cassette is always the same text.
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// The agent that was run.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// What it was given to do, without secrets.
    pub fn input(&self) -> &str {
        self.input.as_str()
    }

    /// How much it holds.
    pub fn size(&self) -> Size {
        let turns = || self.sessions.values().flat_map(|session| &session.turns);
        Size {
            model_calls: turns().map(|turn| turn.exchanges.len()).sum(),
            tool_calls: turns().map(|turn| turn.calls.len()).sum(),
            runs: self.sessions.values().filter(|session| session.run.is_some()).count(),
            messages: self.sessions.values().map(|session| session.messages.len()).sum(),
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
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &usize) -> bool {
    *value == 0
}
