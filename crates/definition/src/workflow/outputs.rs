//! The outputs that a node declares, and their file form: a list of names, or a mapping of names to
//! types.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize};

use crate::file::ordered::OrderedMap;
use crate::value::Text;

/// A part of the State that a node writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredOutput {
    /// The name in the State's metadata.
    pub name: Text,
    /// The type of the value.
    pub output_type: OutputType,
}

/// The type of a declared output.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, DeriveDeserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OutputType {
    /// The text as it is, even if it looks like JSON.
    #[default]
    Text,
    /// The value of the text as JSON. A text that is not JSON fails the node.
    Json,
}

/// The outputs of a node, as written.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum OutputsFile {
    Names(Vec<Text>),
    Types(OrderedMap<Text, OutputType>),
}

impl OutputsFile {
    /// The outputs; a mapping is sorted by name, because the order of a mapping means nothing.
    pub(super) fn into_outputs(self) -> Vec<DeclaredOutput> {
        let declare = |(name, output_type)| DeclaredOutput { name, output_type };
        match self {
            Self::Names(names) => {
                names.into_iter().map(|name| declare((name, OutputType::Text))).collect()
            }
            Self::Types(types) => {
                let mut outputs: Vec<_> = types.0.into_iter().map(declare).collect();
                outputs.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
                outputs
            }
        }
    }

    /// The file form; a list if every output is text.
    pub(super) fn of(outputs: &[DeclaredOutput]) -> Self {
        if outputs.iter().all(|output| output.output_type == OutputType::Text) {
            return Self::Names(outputs.iter().map(|output| output.name.clone()).collect());
        }
        let types = outputs.iter().map(|output| (output.name.clone(), output.output_type));
        Self::Types(OrderedMap(types.collect()))
    }
}

impl<'de> Deserialize<'de> for OutputsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OutputsVisitor)
    }
}

struct OutputsVisitor;

impl<'de> Visitor<'de> for OutputsVisitor {
    type Value = OutputsFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names, or a mapping of names to text or json")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OutputsFile, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(OutputsFile::Names)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OutputsFile, A::Error> {
        OrderedMap::deserialize(MapAccessDeserializer::new(map)).map(OutputsFile::Types)
    }
}

impl JsonSchema for OutputsFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Outputs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = generator.subschema_for::<Text>();
        let output_type = generator.subschema_for::<OutputType>();
        json_schema!({
            "anyOf": [
                { "type": "array", "items": name },
                { "type": "object", "additionalProperties": output_type }
            ]
        })
    }
}
