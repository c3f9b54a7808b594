//! The kinds of definition files that have a JSON Schema.

use std::str::FromStr;

use polity_definition::{DefinitionKind, UnknownDefinitionKind, schema};
use serde_json::Value;

/// A kind of definition file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaKind {
    /// A kind that `polity-definition` decodes.
    Task(DefinitionKind),
    /// `charts/NAME.yaml`
    Chart,
    /// `scenarios/NAME.yaml`
    Scenario,
}

impl SchemaKind {
    /// Every kind.
    pub fn all() -> impl Iterator<Item = Self> {
        DefinitionKind::ALL.into_iter().map(Self::Task).chain([Self::Chart, Self::Scenario])
    }

    /// The kind in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task(kind) => kind.as_str(),
            Self::Chart => "chart",
            Self::Scenario => "scenario",
        }
    }

    /// The JSON Schema of such files.
    pub fn schema(self) -> Value {
        match self {
            Self::Task(kind) => schema(kind),
            Self::Chart => polity_statechart::schema(),
            Self::Scenario => polity_simulator::scenario::schema(),
        }
    }
}

impl FromStr for SchemaKind {
    type Err = UnknownDefinitionKind;

    fn from_str(text: &str) -> Result<Self, UnknownDefinitionKind> {
        match Self::all().find(|kind| kind.as_str() == text) {
            Some(kind) => Ok(kind),
            None => text.parse().map(Self::Task),
        }
    }
}
