//! The State as conditions and templates see it, under the same names in both languages.
//!
//! Only the fields that a text reads are copied; compiling the text determines them.

mod accepts;
mod reading;
mod steps;

use std::borrow::Cow;

use polity_model::message::Message;
use polity_model::state::CaughtError;
use polity_model::value::excerpt;
use serde_json::{Map, Value};

pub(crate) use self::accepts::accepts;
pub(crate) use self::reading::{NODE_JSON, NODE_OUTPUT, ScopeReads, check_node_field};
pub(crate) use self::steps::steps;
use crate::workflow::ITEM_INDEX;

/// The State of a task, as conditions and templates see it.
#[derive(Debug, Clone)]
pub struct EvaluationScope<'a> {
    /// The task's input.
    pub input: &'a str,
    /// The newest message on the path to this node.
    pub last: &'a str,
    /// The conversation so far.
    pub messages: &'a [Message],
    /// One more message, after `messages`.
    pub newest: Option<&'a Message>,
    /// The next action, if one is decided.
    pub next_action: Option<&'a str>,
    /// The agent at work.
    pub current_agent: &'a str,
    /// The key that picks an edge.
    pub routing_key: Option<&'a str>,
    /// Everything else.
    pub metadata: Cow<'a, Map<String, Value>>,
    /// The newest output of each node that ran, by the node's name.
    pub outputs: Vec<(&'a str, &'a str)>,
    /// The failure that an error edge caught last.
    pub error: Option<&'a CaughtError>,
    /// The item of a map, in the templates and conditions of its node.
    pub item: Option<ItemScope<'a>>,
}

/// One item of a map, as the templates and conditions of the map's node see it.
#[derive(Debug, Clone, Copy)]
pub struct ItemScope<'a> {
    /// The name of the item.
    pub name: &'a str,
    /// The item.
    pub value: &'a Value,
    /// Its index in the list, from 0.
    pub index: usize,
}

impl ItemScope<'_> {
    /// The value of a name: the item, or its index.
    fn value(&self, name: &str) -> Option<Value> {
        if name == self.name {
            Some(self.value.clone())
        } else {
            (name == ITEM_INDEX).then(|| self.index.into())
        }
    }
}

/// A condition or template that could not be evaluated, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\": {reason}")]
pub struct EvaluationError {
    text: String,
    reason: String,
    items: usize,
}

impl EvaluationError {
    pub(crate) fn new(text: &str, reason: impl Into<String>) -> Self {
        Self { text: excerpt(text), reason: reason.into(), items: 0 }
    }

    pub(crate) fn with_items(self, items: usize) -> Self {
        Self { items, ..self }
    }

    /// The number of items in the list that is too large to evaluate; 0 for any other error.
    pub fn items(&self) -> usize {
        self.items
    }
}

/// A field of the State.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScopeField {
    Input,
    Last,
    Messages,
    NextAction,
    CurrentAgent,
    RoutingKey,
    Metadata,
    Nodes,
    Error,
}

impl ScopeField {
    pub(crate) const ALL: [Self; 9] = [
        Self::Input,
        Self::Last,
        Self::Messages,
        Self::NextAction,
        Self::CurrentAgent,
        Self::RoutingKey,
        Self::Metadata,
        Self::Nodes,
        Self::Error,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Last => "last",
            Self::Messages => "messages",
            Self::NextAction => "next_action",
            Self::CurrentAgent => "current_agent",
            Self::RoutingKey => "routing_key",
            Self::Metadata => "metadata",
            Self::Nodes => "nodes",
            Self::Error => "error",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.as_str() == name)
    }
}

impl EvaluationScope<'_> {
    /// The fields that a text reads, and their values. A field without a value is null.
    pub(crate) fn view(&self, reading: &ScopeReads) -> Map<String, Value> {
        let fields = reading.fields.iter();
        let fields = fields.map(|field| (field.as_str().to_owned(), self.value(*field, reading)));
        let others = reading.others.iter();
        let others = others.filter_map(|name| Some((name.clone(), self.item?.value(name)?)));
        fields.chain(others).collect()
    }

    fn value(&self, field: ScopeField, reading: &ScopeReads) -> Value {
        match field {
            ScopeField::Input => self.input.into(),
            ScopeField::Last => self.last.into(),
            ScopeField::Messages => {
                let messages = self.messages.iter().chain(self.newest);
                // Messages hold only JSON values, so this cannot fail.
                messages.map(|message| serde_json::to_value(message).unwrap_or_default()).collect()
            }
            ScopeField::NextAction => self.next_action.into(),
            ScopeField::CurrentAgent => self.current_agent.into(),
            ScopeField::RoutingKey => self.routing_key.into(),
            ScopeField::Metadata => Value::Object(self.metadata.as_ref().clone()),
            ScopeField::Nodes => {
                let read = self.outputs.iter().filter(|(name, _)| reading.reads_node(name));
                let nodes = read.map(|(name, output)| ((*name).to_owned(), node(output, reading)));
                Value::Object(nodes.collect())
            }
            // It holds only texts, so this cannot fail.
            ScopeField::Error => self
                .error
                .map_or(Value::Null, |error| serde_json::to_value(error).unwrap_or_default()),
        }
    }
}

/// The output of a node as text, and parsed if it is a JSON object or array.
fn node(output: &str, reading: &ScopeReads) -> Value {
    let mut node = Map::new();
    node.insert(NODE_OUTPUT.to_owned(), output.into());
    if reading.json
        && let Some(json) = json_of(output)
    {
        node.insert(NODE_JSON.to_owned(), json);
    }
    Value::Object(node)
}

/// A text that is a JSON object or array, parsed.
fn json_of(text: &str) -> Option<Value> {
    // Most outputs are prose, which the first character rules out.
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    serde_json::from_str(text).ok()
}

#[cfg(test)]
pub(crate) mod tests;
