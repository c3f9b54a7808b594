//! The State fields that a text reads, determined by compiling it.

use std::collections::BTreeSet;

use super::ScopeField;
use crate::{did_you_mean, nearest};

/// The output of a node as text, as in `nodes.draft.output`.
pub(crate) const NODE_OUTPUT: &str = "output";

/// The parsed output of a node, if it is a JSON object or array.
pub(crate) const NODE_JSON: &str = "json";

/// The State fields that a text reads.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScopeReads {
    /// The fields.
    pub(crate) fields: BTreeSet<ScopeField>,
    /// The nodes that it names.
    pub(crate) nodes: BTreeSet<String>,
    /// True if it may read nodes that it does not name.
    pub(crate) any_node: bool,
    /// True if it may read a node's output as JSON.
    pub(crate) json: bool,
    /// Names that the State does not have, such as the item of a map.
    pub(crate) others: BTreeSet<String>,
}

impl ScopeReads {
    pub(crate) fn reads_node(&self, name: &str) -> bool {
        self.any_node || self.nodes.contains(name)
    }

    /// Adds a field of the State, or another name.
    pub(crate) fn read(&mut self, name: &str) -> Option<ScopeField> {
        let field = ScopeField::named(name);
        match field {
            Some(field) => _ = self.fields.insert(field),
            None => _ = self.others.insert(name.to_owned()),
        }
        field
    }

    /// Checks that every name is a field of the State, or one of these.
    pub(crate) fn check_names(&self, more: &[&str]) -> Result<(), String> {
        match self.others.iter().find(|name| !more.contains(&name.as_str())) {
            Some(name) => Err(unknown_field(name, more)),
            None => Ok(()),
        }
    }
}

fn unknown_field(name: &str, more: &[&str]) -> String {
    let mut names: Vec<&str> = ScopeField::ALL.map(ScopeField::as_str).to_vec();
    names.extend(more);
    match nearest(name, names.iter().copied()) {
        Some(near) => format!("the State has no \"{name}\"{}", did_you_mean(near)),
        None => format!("the State has no \"{name}\"; it has {}", names.join(", ")),
    }
}

/// A node has an output, as text and as JSON, and nothing else.
pub(crate) fn check_node_field(node: &str, field: &str) -> Result<(), String> {
    let fields = [NODE_OUTPUT, NODE_JSON];
    if fields.contains(&field) {
        return Ok(());
    }
    Err(match nearest(field, fields) {
        Some(near) => format!("nodes.{node} has no \"{field}\"{}", did_you_mean(near)),
        None => format!("nodes.{node} has no \"{field}\"; it has {}", fields.join(" and ")),
    })
}
