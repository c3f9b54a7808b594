//! The arguments of a command-line agent: a list, or a mapping in file order.

use std::fmt;

use polity_model::inline_schema;
use serde::Serialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::template::CliTemplate;
use crate::file::ordered::OrderedMap;

/// Arguments in order, however they were written.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(super) struct CliArgs(pub(super) Vec<CliTemplate>);

impl<'de> Deserialize<'de> for CliArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CliArgsVisitor)
    }
}

struct CliArgsVisitor;

impl<'de> Visitor<'de> for CliArgsVisitor {
    type Value = CliArgs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts, or a mapping of option to value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<CliArgs, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(CliArgs)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<CliArgs, A::Error> {
        let entries: OrderedMap<CliTemplate, OptionValue> =
            OrderedMap::deserialize(MapAccessDeserializer::new(entries))?;
        let both = entries
            .0
            .into_iter()
            .flat_map(|(option, OptionValue(value))| std::iter::once(option).chain(value));
        Ok(CliArgs(both.collect()))
    }
}

/// The value of an option; none for a flag.
#[derive(Debug)]
struct OptionValue(Option<CliTemplate>);

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OptionValueVisitor)
    }
}

struct OptionValueVisitor;

impl Visitor<'_> for OptionValueVisitor {
    type Value = OptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, true or nothing")
    }

    fn visit_unit<E>(self) -> Result<OptionValue, E> {
        Ok(OptionValue(None))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<OptionValue, E> {
        if value {
            Ok(OptionValue(None))
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Bool(value), &self))
        }
    }

    fn visit_u64<E>(self, value: u64) -> Result<OptionValue, E> {
        Ok(OptionValue(Some(CliTemplate::literal(&value.to_string()))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OptionValue, E> {
        Ok(OptionValue(Some(CliTemplate::literal(&value.to_string()))))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<OptionValue, E> {
        value.parse().map(|value| OptionValue(Some(value))).map_err(E::custom)
    }
}

inline_schema!(CliArgs, {
    "anyOf": [
        { "type": "array", "items": { "type": "string" } },
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{ "type": ["string", "integer", "null"] }, { "const": true }]
            }
        }
    ]
});
