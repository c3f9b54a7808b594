//! JSON Schemas of the definition files, for editors.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::agent::AgentFile;
use crate::config::mcp_server::McpServersFile;
use crate::config::retention::RetentionPolicyFile;
use crate::config::settings::SettingsFile;
use crate::schedule::ScheduleFile;
use crate::script::ScriptFile;
use crate::value::suggest;
use crate::workflow::WorkflowFile;

/// A kind of definition file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionKind {
    /// `agents/NAME.yaml`
    Agent,
    /// `workflows/NAME.yaml`
    Workflow,
    /// `schedules/NAME.yaml`
    Schedule,
    /// `scripts/NAME.yaml`
    Script,
    /// `config/mcp_servers.yaml`
    McpServers,
    /// `polity.yaml`
    Settings,
    /// `config/retention_policy.yaml`
    RetentionPolicy,
}

impl DefinitionKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Agent,
        Self::Workflow,
        Self::Schedule,
        Self::Script,
        Self::McpServers,
        Self::Settings,
        Self::RetentionPolicy,
    ];

    /// The kind in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Workflow => "workflow",
            Self::Schedule => "schedule",
            Self::Script => "script",
            Self::McpServers => "mcp_servers",
            Self::Settings => "settings",
            Self::RetentionPolicy => "retention_policy",
        }
    }
}

impl fmt::Display for DefinitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An unknown kind of definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of definition \"{found}\"{}", hint(.found))]
pub struct UnknownDefinitionKind {
    found: String,
}

fn hint(found: &str) -> String {
    let kinds = DefinitionKind::ALL.map(DefinitionKind::as_str);
    match suggest::nearest(found, kinds) {
        Some(kind) => suggest::did_you_mean(kind),
        None => format!("; allowed: {}", kinds.join(", ")),
    }
}

impl FromStr for DefinitionKind {
    type Err = UnknownDefinitionKind;

    fn from_str(text: &str) -> Result<Self, UnknownDefinitionKind> {
        let kind = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        kind.ok_or_else(|| UnknownDefinitionKind { found: text.to_owned() })
    }
}

/// The JSON Schema (draft 2020-12) of a kind of definition file.
pub fn schema(kind: DefinitionKind) -> Value {
    match kind {
        DefinitionKind::Agent => schema_of::<AgentFile>(),
        DefinitionKind::Workflow => schema_of::<WorkflowFile>(),
        DefinitionKind::Schedule => schema_of::<ScheduleFile>(),
        DefinitionKind::Script => schema_of::<ScriptFile>(),
        DefinitionKind::McpServers => schema_of::<McpServersFile>(),
        DefinitionKind::Settings => schema_of::<SettingsFile>(),
        DefinitionKind::RetentionPolicy => schema_of::<RetentionPolicyFile>(),
    }
}

fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}
