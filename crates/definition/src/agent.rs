//! Agents: one file each, whose `kind` selects the form.

mod a2a;
mod cli;
mod llm;
mod output_schema;
mod remote;
mod script;

use polity_model::name::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

pub use self::a2a::{
    A2aCapabilities, A2aDefinition, A2aTransport, AuthenticationDefinition, AuthenticationType,
    RateLimit,
};
pub use self::cli::glob::{GlobMatcher, PathGlob};
pub use self::cli::parser::{JsonPick, JsonScalar, OutputFormat, OutputParser};
pub use self::cli::preset::CliPreset;
pub use self::cli::template::{CliPlaceholder, CliTemplate};
pub use self::cli::{
    AccessType, AgentMode, AgentType, CliAgent, EmptyOutputPolicy, ErrorRule, ErrorStream,
    InputPattern, OutputPattern, PermissionPolicy, QueueFullPolicy, ResourceLimits, StopSignal,
    WorkspaceMode,
};
pub use self::llm::{LlmAgent, LlmConfig, LlmProvider, TokenPrice, TruncationPolicy};
pub use self::output_schema::OutputSchema;
pub use self::remote::RemoteAgent;
pub use self::script::SCRIPT_RUNS_MAX;

pub(crate) use self::cli::file::CliAgentFile;
pub(crate) use self::llm::LlmAgentFile;
pub(crate) use self::remote::RemoteAgentFile;
use self::script::ScriptAgentFile;

use crate::file::canonical::{self, canonical_form};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::DefinitionProblem;
use crate::value::Text;

/// An agent: a language model with tools, a command-line program, or an agent on another server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(tag = "kind", title = "agent")]
pub(crate) enum AgentFile {
    /// A language model with tools.
    Llm(Box<LlmAgentFile>),
    /// A command-line program.
    Cli(Box<CliAgentFile>),
    /// An agent on another server, reached over A2A.
    Remote(Box<RemoteAgentFile>),
    /// The script of a workflow's node. Only pinned definitions have this kind.
    #[schemars(skip)]
    Script(Box<ScriptAgentFile>),
}

impl Serialize for AgentFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, mut value) = match self {
            Self::Llm(file) => ("llm", canonical::to_value(file)),
            Self::Cli(file) => ("cli", canonical::to_value(file)),
            Self::Remote(file) => ("remote", canonical::to_value(file)),
            Self::Script(file) => ("script", canonical::to_value(file)),
        };
        if let Some(fields) = value.as_object_mut() {
            fields.insert("kind".to_owned(), kind.into());
        }
        value.serialize(serializer)
    }
}

/// An agent, valid and frozen.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// The name it is called by.
    pub name: Name,
    /// The kind of agent, with its settings.
    pub kind: AgentKind,
    /// Its A2A endpoint; the defaults apply if none.
    pub a2a: Option<A2aDefinition>,
}

/// The kinds of agents.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "each agent is there once, and shared")]
pub enum AgentKind {
    /// A language model with tools.
    Llm(LlmAgent),
    /// A command-line program.
    Cli(CliAgent),
    /// An agent on another server.
    Remote(RemoteAgent),
}

impl AgentKind {
    /// The kind as files spell it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Llm(_) => "llm",
            Self::Cli(_) => "cli",
            Self::Remote(_) => "remote",
        }
    }
}

/// The identity of an agent, which never changes during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The name it is called by.
    pub name: Name,
    /// Its role or purpose.
    pub role: Text,
    /// The instruction that opens each of its conversations.
    pub system_prompt: Text,
}

impl AgentFile {
    fn name(&self) -> Option<&Name> {
        match self {
            Self::Llm(file) => file.name.as_ref(),
            Self::Cli(file) => file.name.as_ref(),
            Self::Remote(file) => file.name.as_ref(),
            Self::Script(file) => file.name.as_ref(),
        }
    }

    pub(crate) fn check(self, checker: &mut FileChecker) -> Option<AgentDefinition> {
        let root = FieldPath::root();
        let name = checker.require(&root.field("name"), self.name().cloned());
        let (kind, a2a) = match self {
            Self::Llm(file) => {
                let a2a = file.a2a.clone();
                (file.check(checker).map(AgentKind::Llm), a2a)
            }
            Self::Cli(file) => {
                let a2a = file.a2a.clone();
                (Some(AgentKind::Cli(file.check(checker))), a2a)
            }
            Self::Remote(file) => {
                let a2a = file.a2a.clone();
                (file.check(checker).map(AgentKind::Remote), a2a)
            }
            Self::Script(file) => (file.check(checker).map(AgentKind::Cli), None),
        };
        let a2a = a2a.and_then(|file| file.check(&root.field("a2a"), checker));
        Some(AgentDefinition { name: name?, kind: kind?, a2a })
    }
}

canonical_form!(AgentDefinition);

impl AgentDefinition {
    /// The command-line program that the agent is, if it is one.
    pub fn program(&self) -> Option<&CliAgent> {
        match &self.kind {
            AgentKind::Cli(program) => Some(program),
            AgentKind::Llm(_) | AgentKind::Remote(_) => None,
        }
    }

    /// The agent on another server that it is, if it is one.
    pub fn remote(&self) -> Option<&RemoteAgent> {
        match &self.kind {
            AgentKind::Remote(remote) => Some(remote),
            AgentKind::Llm(_) | AgentKind::Cli(_) => None,
        }
    }

    /// The agent's role in a few words, if given.
    pub fn role(&self) -> Option<&str> {
        match &self.kind {
            AgentKind::Llm(agent) => Some(agent.identity.role.as_str()),
            AgentKind::Cli(agent) => agent.role.as_ref().map(Text::as_str),
            AgentKind::Remote(agent) => agent.role.as_ref().map(Text::as_str),
        }
    }

    /// Reads a definition back from its canonical JSON.
    pub fn from_canonical(json: &str) -> Result<Self, Vec<DefinitionProblem>> {
        crate::file::from_text(json, AgentFile::check)
    }

    fn to_file(&self) -> AgentFile {
        let name = Some(self.name.clone());
        let a2a = self.a2a.as_ref().map(A2aDefinition::to_file);
        match &self.kind {
            AgentKind::Llm(agent) => AgentFile::Llm(Box::new(agent.to_file(name, a2a))),
            AgentKind::Cli(agent) => match ScriptAgentFile::of(&self.name, agent) {
                Some(file) => AgentFile::Script(Box::new(file)),
                None => AgentFile::Cli(Box::new(agent.to_file(name, a2a))),
            },
            AgentKind::Remote(agent) => AgentFile::Remote(Box::new(agent.to_file(name, a2a))),
        }
    }
}
