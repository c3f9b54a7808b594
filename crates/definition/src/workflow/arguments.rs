//! The arguments of a tool node: JSON in which every text is a template.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::evaluation::scope::{EvaluationError, EvaluationScope, ScopeReads};
use crate::evaluation::template::{Template, ValueTemplate};
use crate::file::ordered::OrderedMap;
use crate::file::path::FieldPath;

/// The arguments of a tool node. A text of exactly one `{{ expression }}` keeps the type of its
/// value; other texts render to text.
#[derive(Clone, Default)]
pub struct ArgumentTemplates(Arc<Vec<(String, ArgumentTemplate)>>);

/// One JSON value in which every text is a template, such as the list of a map.
#[derive(Clone)]
pub struct ValueSource(Arc<ArgumentTemplate>);

enum ArgumentTemplate {
    /// Null, a number, true, false, or a text without braces.
    Fixed(Value),
    Text(Template),
    Value {
        written: String,
        template: ValueTemplate,
    },
    List(Vec<ArgumentTemplate>),
    Map(Vec<(String, ArgumentTemplate)>),
}

impl ArgumentTemplates {
    /// The arguments for one call.
    pub fn render(
        &self,
        scope: &EvaluationScope<'_>,
    ) -> Result<Map<String, Value>, EvaluationError> {
        render_map(&self.0, scope)
    }

    /// The arguments as written.
    pub fn as_written(&self) -> Map<String, Value> {
        written_map(&self.0)
    }

    /// The nodes that the arguments read by name.
    pub fn nodes_named(&self) -> impl Iterator<Item = &str> {
        let mut found = Vec::new();
        for (_, argument) in self.0.iter() {
            argument.readings(&FieldPath::root(), &mut found);
        }
        found.into_iter().flat_map(|(_, reading)| reading.nodes.iter().map(String::as_str))
    }

    /// The State fields that each template reads, with its path.
    pub(super) fn readings(&self, path: &FieldPath) -> Vec<(FieldPath, &ScopeReads)> {
        let mut found = Vec::new();
        for (name, argument) in self.0.iter() {
            argument.readings(&path.field(name), &mut found);
        }
        found
    }
}

impl ValueSource {
    /// The value.
    pub fn render(&self, scope: &EvaluationScope<'_>) -> Result<Value, EvaluationError> {
        self.0.render(scope)
    }

    /// The value as written.
    pub fn as_written(&self) -> Value {
        self.0.as_written()
    }

    /// A description of the value, if it can never be a list.
    pub(super) fn never_list(&self) -> Option<&'static str> {
        match &*self.0 {
            ArgumentTemplate::Fixed(Value::String(_)) => Some("a text"),
            ArgumentTemplate::Fixed(Value::Null) => Some("null"),
            ArgumentTemplate::Fixed(Value::Bool(_)) => Some("true or false"),
            ArgumentTemplate::Fixed(Value::Number(_)) => Some("a number"),
            ArgumentTemplate::Text(_) => Some("a text with a template in it"),
            ArgumentTemplate::Map(_) => Some("a mapping"),
            ArgumentTemplate::Fixed(Value::Array(_) | Value::Object(_))
            | ArgumentTemplate::Value { .. }
            | ArgumentTemplate::List(_) => None,
        }
    }

    /// The State fields that each template reads, with its path.
    pub(super) fn readings(&self, path: &FieldPath) -> Vec<(FieldPath, &ScopeReads)> {
        let mut found = Vec::new();
        self.0.readings(path, &mut found);
        found
    }
}

impl PartialEq for ValueSource {
    fn eq(&self, other: &Self) -> bool {
        self.as_written() == other.as_written()
    }
}

impl fmt::Debug for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_written().fmt(f)
    }
}

impl Serialize for ValueSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_written().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ValueSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ArgumentTemplate::deserialize(deserializer).map(|value| Self(Arc::new(value)))
    }
}

polity_model::inline_schema!(ValueSource, {
    "anyOf": [{ "type": "string", "pattern": "^\\s*\\{\\{" }, { "type": "array" }]
});

impl ArgumentTemplate {
    fn text(text: String) -> Result<Self, String> {
        // Texts without braces are not limited as templates are, and may be empty.
        if !["{{", "{%", "{#"].iter().any(|brace| text.contains(brace)) {
            return Ok(Self::Fixed(Value::String(text)));
        }
        if let Some(template) = ValueTemplate::compile(&text) {
            return Ok(Self::Value { template: template?, written: text });
        }
        Template::compile(&text).map(Self::Text)
    }

    fn render(&self, scope: &EvaluationScope<'_>) -> Result<Value, EvaluationError> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(scope)?),
            Self::Value { template, .. } => template.evaluate(scope)?,
            Self::List(items) => {
                items.iter().map(|item| item.render(scope)).collect::<Result<_, _>>()?
            }
            Self::Map(entries) => Value::Object(render_map(entries, scope)?),
        })
    }

    fn as_written(&self) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => template.as_str().into(),
            Self::Value { written, .. } => written.as_str().into(),
            Self::List(items) => items.iter().map(Self::as_written).collect(),
            Self::Map(entries) => Value::Object(written_map(entries)),
        }
    }

    fn readings<'a>(&'a self, path: &FieldPath, found: &mut Vec<(FieldPath, &'a ScopeReads)>) {
        match self {
            Self::Fixed(_) => {}
            Self::Text(template) => found.push((path.clone(), template.reading())),
            Self::Value { template, .. } => found.push((path.clone(), template.reading())),
            Self::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.readings(&path.index(index), found);
                }
            }
            Self::Map(entries) => {
                for (name, entry) in entries {
                    entry.readings(&path.field(name), found);
                }
            }
        }
    }
}

fn render_map(
    entries: &[(String, ArgumentTemplate)],
    scope: &EvaluationScope<'_>,
) -> Result<Map<String, Value>, EvaluationError> {
    entries.iter().map(|(name, argument)| Ok((name.clone(), argument.render(scope)?))).collect()
}

fn written_map(entries: &[(String, ArgumentTemplate)]) -> Map<String, Value> {
    entries.iter().map(|(name, argument)| (name.clone(), argument.as_written())).collect()
}

impl PartialEq for ArgumentTemplates {
    fn eq(&self, other: &Self) -> bool {
        self.as_written() == other.as_written()
    }
}

impl fmt::Debug for ArgumentTemplates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_written().fmt(f)
    }
}

impl Serialize for ArgumentTemplates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_written().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ArgumentTemplates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        OrderedMap::deserialize(deserializer).map(|entries| Self(Arc::new(entries.0)))
    }
}

impl JsonSchema for ArgumentTemplates {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Arguments".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Map<String, Value>>()
    }
}

impl<'de> Deserialize<'de> for ArgumentTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentVisitor)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = ArgumentTemplate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<ArgumentTemplate, E> {
        Ok(ArgumentTemplate::Fixed(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<ArgumentTemplate, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<ArgumentTemplate, D::Error> {
        ArgumentTemplate::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<ArgumentTemplate, E> {
        Ok(ArgumentTemplate::Fixed(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ArgumentTemplate, E> {
        Ok(ArgumentTemplate::Fixed(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ArgumentTemplate, E> {
        Ok(ArgumentTemplate::Fixed(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ArgumentTemplate, E> {
        Ok(ArgumentTemplate::Fixed(value.into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ArgumentTemplate, E> {
        ArgumentTemplate::text(text.to_owned()).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<ArgumentTemplate, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(ArgumentTemplate::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ArgumentTemplate, A::Error> {
        let entries = OrderedMap::deserialize(MapAccessDeserializer::new(map))?;
        Ok(ArgumentTemplate::Map(entries.0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::evaluation::scope::tests::with_scope;

    #[test]
    fn renders_arguments_and_keeps_types() {
        let written = json!({
            "city": "{{ metadata.topic }} in {{ metadata.count }} places",
            "count": "{{ metadata.count }}",
            "deep": [1, {"steps": "{{ nodes.plan.output | steps }}", "none": null}],
            "plain": "no braces",
            "empty": "",
        });
        let arguments: ArgumentTemplates = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(Value::Object(arguments.as_written()), written);
        assert_eq!(serde_json::to_value(&arguments).unwrap(), written);
        assert_eq!(arguments.nodes_named().collect::<Vec<_>>(), ["plan"]);
        let rendered = with_scope(|scope| arguments.render(scope)).unwrap();
        assert_eq!(
            Value::Object(rendered),
            json!({
                "city": "rain in 3 places",
                "count": 3,
                "deep": [1, {"steps": ["look", "buy"], "none": null}],
                "plain": "no braces",
                "empty": "",
            })
        );
    }
}
