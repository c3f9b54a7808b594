//! The definition of a workflow as front ends show it: with its digest, and its nodes in file order.

use std::fmt;

use polity_definition::WorkflowDefinition;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// The field with the nodes.
const NODES: &str = "nodes";

/// The field with the digest, which is not part of the definition.
const DIGEST: &str = "digest";

/// The definition of a workflow. Its nodes keep the order of the file, which parsed JSON does not.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowDetails {
    /// The fields by name. The value of `nodes` is empty, and they are in `nodes`.
    pub fields: Map<String, Value>,
    /// The nodes in file order.
    pub nodes: Vec<(String, Value)>,
    /// The digest.
    pub digest: String,
}

impl WorkflowDetails {
    /// The details of a workflow.
    pub fn of(workflow: &WorkflowDefinition) -> Result<Self, serde_json::Error> {
        let mut fields: Map<String, Value> = serde_json::from_str(&workflow.canonical_json())?;
        let mut nodes = Vec::new();
        if let Some(Value::Object(all)) = fields.get_mut(NODES) {
            for node in &workflow.nodes {
                nodes.extend(all.remove_entry(node.name.as_str()));
            }
        }
        Ok(Self { fields, nodes, digest: workflow.digest().to_string() })
    }
}

impl Serialize for WorkflowDetails {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.fields {
            if name == NODES {
                map.serialize_entry(name, &OrderedNodes(self.nodes.clone()))?;
            } else {
                map.serialize_entry(name, value)?;
            }
        }
        map.serialize_entry(DIGEST, &self.digest)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for WorkflowDetails {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DetailsVisitor)
    }
}

struct DetailsVisitor;

impl<'de> Visitor<'de> for DetailsVisitor {
    type Value = WorkflowDetails;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the definition of a workflow")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WorkflowDetails, A::Error> {
        let (mut fields, mut nodes, mut digest) = (Map::new(), Vec::new(), None);
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                NODES => {
                    nodes = map.next_value::<OrderedNodes>()?.0;
                    fields.insert(name, Value::Object(Map::new()));
                }
                DIGEST => digest = Some(map.next_value()?),
                _ => {
                    fields.insert(name, map.next_value()?);
                }
            }
        }
        let digest = digest.ok_or_else(|| A::Error::missing_field(DIGEST))?;
        Ok(WorkflowDetails { fields, nodes, digest })
    }
}

/// A map that keeps its order.
struct OrderedNodes(Vec<(String, Value)>);

impl Serialize for OrderedNodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for OrderedNodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NodesVisitor)
    }
}

struct NodesVisitor;

impl<'de> Visitor<'de> for NodesVisitor {
    type Value = OrderedNodes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the nodes of a workflow")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedNodes, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = map.next_entry()? {
            nodes.push(node);
        }
        Ok(OrderedNodes(nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_keep_their_order() {
        let text = r#"{"entry_point":"z","name":"n","nodes":{"z":1,"a":{"b":2}},"digest":"d"}"#;
        let details: WorkflowDetails = serde_json::from_str(text).unwrap();
        let names: Vec<&str> = details.nodes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, details.digest.as_str()), (vec!["z", "a"], "d"));
        assert_eq!(serde_json::to_string(&details).unwrap(), text);
        assert!(serde_json::from_str::<WorkflowDetails>("{}").is_err());
    }
}
