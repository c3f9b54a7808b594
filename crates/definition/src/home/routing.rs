//! Refuses edges whose routing key their node can never give.
//!
//! This is a rule for files. A pinned workflow of an earlier version keeps running.

use std::collections::BTreeSet;

use polity_model::review::ReviewAction;

use super::{FileContent, FileEntry};
use crate::evaluation::expression::ConditionExpression;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::workflow::{EdgeTarget, WorkflowDefinition, WorkflowEdge, WorkflowNodeKind};

pub(super) fn check(entries: &mut [FileEntry]) {
    for entry in entries {
        let FileContent::Workflow(Some(workflow)) = &entry.content else { continue };
        let mut findings = Vec::new();
        for (index, edge) in workflow.edges.iter().enumerate() {
            let Some(keys) = routing_keys(workflow, edge) else { continue };
            let path = FieldPath::root().field("edges").index(index);
            findings.extend(unreachable(edge, &keys, &path));
        }
        for (path, finding) in findings {
            entry.checker.report(&path, finding);
        }
    }
}

/// The keys that the node at the start of an edge can give; none if that cannot be told.
fn routing_keys(workflow: &WorkflowDefinition, edge: &WorkflowEdge) -> Option<BTreeSet<String>> {
    match &workflow.node(edge.from.as_str())?.kind {
        WorkflowNodeKind::Human { .. } => {
            let actions = [ReviewAction::Approve, ReviewAction::Reject, ReviewAction::Modify];
            Some(actions.map(|action| action.label().to_owned()).into())
        }
        WorkflowNodeKind::Condition { expression } => expression.routing_keys(),
        WorkflowNodeKind::Agent { .. }
        | WorkflowNodeKind::Tool { .. }
        | WorkflowNodeKind::Parallel { .. }
        | WorkflowNodeKind::Workflow { .. }
        | WorkflowNodeKind::Script { .. }
        | WorkflowNodeKind::Map { .. } => None,
    }
}

fn unreachable(
    edge: &WorkflowEdge,
    keys: &BTreeSet<String>,
    path: &FieldPath,
) -> Vec<(FieldPath, FindingText)> {
    let from = &edge.from;
    let finding = |path: &FieldPath, key: &str| {
        let message = format!("{path}: \"{from}\" never gives the routing key \"{key}\"");
        FindingText::new(message).one_of(key, keys)
    };
    let mapped = match &edge.to {
        EdgeTarget::Node(_) => None,
        EdgeTarget::ByRoutingKey { nodes, .. } => Some(nodes.keys()),
    };
    let mapped = mapped.into_iter().flatten().filter(|key| !keys.contains(*key)).map(|key| {
        let path = path.field("to").field(key);
        let finding = finding(&path, key);
        (path, finding)
    });
    let compared = edge.condition.iter().flat_map(ConditionExpression::compared_routing_keys);
    let compared = compared.filter(|key| !keys.contains(key)).map(|key| {
        let path = path.field("condition");
        let finding = finding(&path, &key);
        (path, finding)
    });
    mapped.chain(compared).collect()
}
