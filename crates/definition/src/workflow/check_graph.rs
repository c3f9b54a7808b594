//! The rules of a workflow graph: no cycle without a limit, every node reachable, branches of one
//! node only, data written before it is read.

use std::collections::BTreeMap;

use polity_model::name::Name;

use super::plan::{DataFlowError, WorkflowPlan};
use super::{WorkflowDefinition, WorkflowEdge, WorkflowNodeKind};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::graph;

pub(super) fn check_graph(workflow: &WorkflowDefinition, checker: &mut FileChecker) {
    let Some(entry_point) = &workflow.entry_point else { return };
    check_branches(workflow, entry_point, checker);
    check_cycles(workflow, checker);
    // Follow-up problems of a cycle or a stray branch are not reported.
    if !checker.is_clean() {
        return;
    }
    let (plan, faults) = WorkflowPlan::with_faults(&workflow.plan_source());
    for fault in faults {
        report_data(workflow, &fault, checker);
    }
    let reached = plan.reached();
    let by_cancel = plan.reached_by_cancel().unwrap_or_else(|| vec![false; reached.len()]);
    for ((node, reached), by_cancel) in workflow.nodes.iter().zip(reached).zip(by_cancel) {
        let name = &node.name;
        if reached && by_cancel {
            let message = format!(
                "on_cancel leads to \"{name}\", which also runs without a cancellation: give \
                 on_cancel nodes of its own"
            );
            checker.report(&FieldPath::root().field("on_cancel"), FindingText::new(message));
            return;
        }
        if reached || by_cancel {
            continue;
        }
        let message = format!(
            "no way leads from \"{entry_point}\" to the node \"{name}\": draw an edge to it, or \
             take it out"
        );
        checker.report_key(&node_path(name), FindingText::new(message));
    }
}

fn node_path(name: &Name) -> FieldPath {
    FieldPath::root().field("nodes").field(name.as_str())
}

/// Checks that a branch belongs to one parallel node, which starts and joins it.
fn check_branches(workflow: &WorkflowDefinition, entry_point: &Name, checker: &mut FileChecker) {
    let mut owners: BTreeMap<&Name, &Name> = BTreeMap::new();
    for node in &workflow.nodes {
        let WorkflowNodeKind::Parallel { branches, .. } = &node.kind else { continue };
        let path = node_path(&node.name).field("branches");
        for (index, branch) in branches.iter().enumerate() {
            let place = path.index(index);
            if *branch == node.name {
                let message = format!("{place}: \"{branch}\" cannot be a branch of itself");
                checker.report(&place, FindingText::new(message));
                continue;
            }
            if branch == entry_point {
                let message = format!("{place}: the workflow begins with \"{branch}\" already");
                checker.report(&place, FindingText::new(message));
            }
            if let Some(owner) = owners.insert(branch, &node.name) {
                let message = format!("{place}: \"{branch}\" is a branch of \"{owner}\" already");
                checker.report(&place, FindingText::new(message));
            }
        }
    }
    let mut refuse = |node: &Name, path: FieldPath| {
        if let Some(owner) = owners.get(node) {
            let message = format!(
                "\"{node}\" is a branch of \"{owner}\", which begins it and goes on after it: \
                 draw the edge to or from \"{owner}\""
            );
            checker.report(&path, FindingText::new(message));
        }
    };
    for (index, edge) in workflow.edges.iter().enumerate() {
        let path = FieldPath::root().field("edges").index(index);
        let ends = std::iter::once((&edge.from, "from"))
            .chain(edge.to.nodes().map(|to| (to, "to")))
            .chain(edge.on_error.iter().map(|to| (to, "on_error")));
        for (node, field) in ends {
            refuse(node, path.field(field));
        }
    }
    for node in &workflow.nodes {
        let Some(to) = &node.on_error else { continue };
        let path = node_path(&node.name).field("on_error");
        refuse(&node.name, path.clone());
        refuse(to, path);
    }
    if let Some(node) = &workflow.on_cancel {
        refuse(node, FieldPath::root().field("on_cancel"));
    }
}

fn check_cycles(workflow: &WorkflowDefinition, checker: &mut FileChecker) {
    let numbers: BTreeMap<&Name, usize> =
        workflow.nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
    // Every name was checked, so the fallback is never used.
    let number = |name: &Name| numbers.get(name).copied().unwrap_or(0);
    let mut unlimited = vec![Vec::new(); workflow.nodes.len()];
    for (index, node) in workflow.nodes.iter().enumerate() {
        if let WorkflowNodeKind::Parallel { branches, .. } = &node.kind {
            // A node that is its own branch is reported already.
            let others = branches.iter().filter(|branch| **branch != node.name);
            unlimited[index].extend(others.map(number));
        }
    }
    for edge in workflow.edges.iter().filter(|edge| edge.max_loops.is_none()) {
        let targets = edge.to.nodes().chain(&edge.on_error);
        unlimited[number(&edge.from)].extend(targets.map(number));
    }
    for (index, node) in workflow.nodes.iter().enumerate() {
        unlimited[index].extend(node.on_error.iter().map(number));
    }
    for cycle in graph::cycles(&unlimited) {
        let message = format!(
            "the workflow has a cycle, {}, without a limit: give one of these edges max_loops{}",
            in_words(workflow, &cycle),
            if has_node_error(workflow, &cycle) {
                ", with on_error at an edge instead of a node"
            } else {
                ""
            }
        );
        let place = closing_edge(workflow, &cycle).unwrap_or_else(FieldPath::root);
        checker.report(&place, FindingText::new(message));
    }
}

/// True if the `on_error` of a node, which has no limit, is part of a cycle.
fn has_node_error(workflow: &WorkflowDefinition, cycle: &[usize]) -> bool {
    let next = cycle.iter().cycle().skip(1);
    cycle.iter().zip(next).any(|(from, to)| {
        workflow.nodes[*from].on_error.as_ref() == Some(&workflow.nodes[*to].name)
    })
}

fn in_words(workflow: &WorkflowDefinition, cycle: &[usize]) -> String {
    graph::cycle_in_words(cycle.iter().map(|node| workflow.nodes[*node].name.as_str()))
}

fn report_data(workflow: &WorkflowDefinition, fault: &DataFlowError, checker: &mut FileChecker) {
    match fault {
        DataFlowError::Circle(cycle) => {
            let Some(first) = cycle.first() else { return };
            let path = node_path(&workflow.nodes[*first].name).field("inputs");
            let message = format!(
                "nodes wait for what each other writes, {}: none of them could begin; take one of \
                 these inputs out",
                in_words(workflow, cycle)
            );
            checker.report(&path, FindingText::new(message));
        }
        DataFlowError::SameOutput { output, one, other } => {
            let (one, other) = (&workflow.nodes[*one].name, &workflow.nodes[*other].name);
            let message = format!(
                "\"{one}\" and \"{other}\" may run at once and both write \"{output}\": give one \
                 another output, or an edge that puts one after the other"
            );
            checker.report(&node_path(other).field("outputs"), FindingText::new(message));
        }
    }
}

/// The edge from the last node of a cycle back to its first.
fn closing_edge(workflow: &WorkflowDefinition, cycle: &[usize]) -> Option<FieldPath> {
    let (first, last) = (cycle.first()?, cycle.last()?);
    let (first, last) = (&workflow.nodes[*first].name, &workflow.nodes[*last].name);
    let closes = |edge: &WorkflowEdge| {
        edge.max_loops.is_none()
            && edge.from == *last
            && edge.to.nodes().chain(&edge.on_error).any(|to| to == first)
    };
    let edge = workflow.edges.iter().position(closes);
    let edges = FieldPath::root().field("edges");
    // A parallel node may also close a cycle.
    Some(edge.map_or_else(|| node_path(last), |edge| edges.index(edge)))
}
