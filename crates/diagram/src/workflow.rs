//! Diagrams of workflows.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use polity_definition::{
    EdgeTarget, JoinMode, LinkKind, WorkflowDefinition, WorkflowEdge, WorkflowNode,
    WorkflowNodeKind, WorkflowPlan,
};
use polity_model::name::Name;

use super::graph::{
    DiagramEdge, DiagramGraph, DiagramNode, EdgeKind, GraphFormat, NodeMarks, NodeShape,
};
use super::layout::ranks;
use super::text::one_line;
use super::{dot, mermaid, svg};

/// Draws a workflow with the marks of its nodes.
///
/// Patterns are drawn expanded.
pub fn draw_workflow(
    workflow: &WorkflowDefinition,
    format: GraphFormat,
    marks: &NodeMarks,
) -> String {
    let graph = workflow_graph(workflow, marks);
    match format {
        GraphFormat::Svg => svg::write(&graph),
        GraphFormat::Mermaid => mermaid::write(&graph),
        GraphFormat::Dot => dot::write(&graph),
    }
}

fn workflow_graph<'a>(workflow: &'a WorkflowDefinition, marks: &NodeMarks) -> DiagramGraph<'a> {
    let graph = workflow.expanded();
    // Compensations are drawn after all other nodes.
    let compensations = graph.nodes.iter().filter_map(|node| node.compensate.as_deref());
    let all: Vec<&WorkflowNode> = graph.nodes.iter().chain(compensations).collect();
    let numbers: BTreeMap<&Name, usize> =
        all.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
    // Every name was checked when the file was read, so the fallback is never used.
    let entry = numbers.get(graph.entry_point).copied().unwrap_or(0);
    let nodes: Vec<_> = all.iter().map(|node| graph_node(workflow, node, marks)).collect();
    let mut edges = Vec::new();
    // For the same reason every edge is added.
    let mut limits = Vec::new();
    let mut add = |from: &Name, to: &Name, kind: EdgeKind, labels: Vec<String>, limit| {
        if let (Some(&from), Some(&to)) = (numbers.get(from), numbers.get(to)) {
            edges.push(DiagramEdge { from, to, kind, labels });
            limits.push(limit);
        }
    };
    for node in graph.nodes {
        if let WorkflowNodeKind::Parallel { branches, .. } = &node.kind {
            for branch in branches {
                add(&node.name, branch, EdgeKind::Branch, Vec::new(), None);
            }
        }
    }
    for edge in graph.edges {
        let mut link = |to: &Name, key: Option<&str>| {
            add(&edge.from, to, EdgeKind::Forward, edge_labels(edge, key), edge.max_loops);
        };
        match &edge.to {
            EdgeTarget::Node(to) => link(to, None),
            EdgeTarget::ByRoutingKey { nodes, default } => {
                for (key, to) in nodes {
                    link(to, Some(key));
                }
                if let Some(to) = default {
                    link(to, Some("default"));
                }
            }
        }
    }
    for link in workflow
        .plan()
        .iter()
        .flat_map(WorkflowPlan::links)
        .filter(|link| link.kind == LinkKind::Data)
    {
        let (from, to) = (&graph.nodes[link.from], &graph.nodes[link.to]);
        let read = from.outputs.iter().filter(|output| to.inputs.contains(&output.name));
        let labels = read.map(|output| one_line(output.name.as_str())).collect();
        add(&from.name, &to.name, EdgeKind::Forward, labels, None);
    }
    let on_error = || vec!["on error".to_owned()];
    for edge in graph.edges {
        if let Some(to) = &edge.on_error {
            add(&edge.from, to, EdgeKind::Error, on_error(), edge.max_loops);
        }
    }
    for node in graph.nodes {
        if let Some(to) = &node.on_error {
            add(&node.name, to, EdgeKind::Error, on_error(), None);
        }
        if let Some(compensation) = &node.compensate {
            let labels = vec!["compensate".to_owned()];
            add(&node.name, &compensation.name, EdgeKind::Error, labels, None);
        }
    }
    let ends: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let back_edges = ranks::find_back_edges(nodes.len(), entry, &ends);
    for ((edge, limit), leads_back) in edges.iter_mut().zip(limits).zip(back_edges) {
        // Only the edges back of a mapping are limited.
        if leads_back {
            edge.kind = EdgeKind::Back;
            edge.labels.extend(limit.map(limit_in_words));
        }
    }
    let is_marked = nodes.iter().any(|node| node.mark.is_some());
    DiagramGraph {
        what: "Workflow",
        name: workflow.name.as_str(),
        nodes,
        edges,
        entry: Some(entry),
        is_marked,
    }
}

fn graph_node<'a>(
    workflow: &WorkflowDefinition,
    node: &'a WorkflowNode,
    marks: &NodeMarks,
) -> DiagramNode<'a> {
    let (shape, mut uses) = kind_of(node);
    if workflow.on_cancel.as_ref() == Some(&node.name) {
        uses = format!("on cancel: {uses}");
    }
    DiagramNode {
        name: node.name.as_str(),
        shape,
        uses,
        notes: Vec::new(),
        parent: None,
        is_checkpoint: workflow.checkpoints.contains(&node.name),
        mark: marks.get(&node.name).copied(),
    }
}

/// The shape of a node, and the definition or text it uses.
fn kind_of(node: &WorkflowNode) -> (NodeShape, String) {
    match &node.kind {
        WorkflowNodeKind::Agent { agent, .. } => (NodeShape::Agent, agent.to_string()),
        WorkflowNodeKind::Tool { tool, .. } => (NodeShape::Tool, one_line(tool.as_str())),
        WorkflowNodeKind::Condition { expression } => {
            (NodeShape::Condition, one_line(expression.as_str()))
        }
        WorkflowNodeKind::Human { question, .. } => (NodeShape::Human, one_line(question.as_str())),
        WorkflowNodeKind::Parallel { join, .. } => {
            (NodeShape::Parallel, join_in_words(*join).to_owned())
        }
        WorkflowNodeKind::Workflow { workflow, .. } => (NodeShape::Workflow, workflow.to_string()),
        WorkflowNodeKind::Script { program, .. } => (NodeShape::Script, one_line(program.label())),
        WorkflowNodeKind::Map { node, .. } => {
            let (shape, uses) = kind_of(node);
            (NodeShape::Map, format!("each: {} {uses}", shape.label()))
        }
    }
}

/// The labels of an edge: routing key and condition.
fn edge_labels(edge: &WorkflowEdge, key: Option<&str>) -> Vec<String> {
    let key = key.map(|key| match one_line(key) {
        // A key may be empty, and an empty label would be invisible.
        blank if blank.is_empty() => "\"\"".to_owned(),
        key => key,
    });
    let condition = edge.condition.as_ref().map(|condition| one_line(condition.as_str()));
    [key, condition].into_iter().flatten().collect()
}

fn limit_in_words(limit: NonZeroU32) -> String {
    match limit.get() {
        1 => "at most once".to_owned(),
        limit => format!("at most {limit} times"),
    }
}

fn join_in_words(join: JoinMode) -> &'static str {
    match join {
        JoinMode::All => "waits for all",
        JoinMode::Any => "waits for one success",
        JoinMode::First => "waits for the first",
    }
}
