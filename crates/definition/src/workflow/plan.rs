//! A workflow ready to run: nodes and the links between them, by number.
//!
//! A link is one connection between two nodes: an edge, with one link for each target of a mapping;
//! an error edge; or a data dependency, if one node reads the other's output. Links back to an
//! earlier node are kept apart: without them the graph has no cycle, so the nodes have an order.
//!
//! Compensations are nodes without links, after all others.

mod data;
mod order;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use polity_model::name::Name;

use super::{EdgeTarget, ExpandedGraph, JoinMode, WorkflowEdge, WorkflowNode, WorkflowNodeKind};
use crate::ConditionExpression;
use crate::graph;

pub(super) use data::DataFlowError;

/// A workflow, ready to be walked.
#[derive(Debug, Clone)]
pub struct WorkflowPlan {
    nodes: Vec<PlanNode>,
    edges: Vec<PlanEdge>,
    links: Vec<PlanLink>,
    entry: usize,
    on_cancel: Option<usize>,
    max_iterations: NonZeroU32,
}

/// The checked parts of a workflow that make its plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanSource<'a> {
    pub(super) graph: ExpandedGraph<'a>,
    pub(super) checkpoints: &'a [Name],
    pub(super) on_cancel: Option<&'a Name>,
    pub(super) max_iterations: NonZeroU32,
}

/// A node with its place among the others.
#[derive(Debug, Clone)]
pub struct PlanNode {
    /// The node.
    pub node: WorkflowNode,
    /// The edges that lead on from it, in file order.
    pub edges: Vec<usize>,
    /// The links that lead on from it.
    pub links_out: Vec<usize>,
    /// The incoming links, except links back.
    pub links_in: Vec<usize>,
    /// The nodes that it runs, if it is a parallel node.
    pub branches: Vec<usize>,
    /// The parallel node that runs it, if one does.
    pub branch_of: Option<usize>,
    /// The node that undoes it, if there is one.
    pub compensation: Option<usize>,
    /// The node that it undoes, if it is a compensation.
    pub compensates: Option<usize>,
    /// Its index in a topological order.
    pub rank: u32,
    /// True if a person is asked before it runs.
    pub pauses: bool,
}

/// An edge, by number.
#[derive(Debug, Clone)]
pub struct PlanEdge {
    /// The condition; always taken if none.
    pub condition: Option<ConditionExpression>,
    /// The most times its links back may be taken.
    pub max_loops: Option<NonZeroU32>,
    /// The target.
    pub target: PlanTarget,
    /// The link to take when the condition cannot be evaluated.
    pub on_error: Option<usize>,
}

/// The target of an edge, as links.
#[derive(Debug, Clone)]
pub enum PlanTarget {
    /// To one node.
    Node(usize),
    /// To the node that the routing key names.
    ByRoutingKey {
        /// The link for each key.
        links: BTreeMap<String, usize>,
        /// The link for every other key.
        default: Option<usize>,
    },
}

/// One connection between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLink {
    /// The node it starts from.
    pub from: usize,
    /// The node it leads to.
    pub to: usize,
    /// The kind of connection.
    pub kind: LinkKind,
    /// The edge it belongs to; none for a data dependency and for the `on_error` of a node.
    pub edge: Option<usize>,
    /// True if it leads back to an earlier node.
    pub is_back: bool,
}

/// The kind of connection between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// An edge, taken when the node at its start finishes.
    Edge,
    /// An error edge, taken when the node at its start fails or its edge cannot be evaluated.
    Error,
    /// A data dependency: the node at its end reads what the node at its start writes.
    Data,
}

impl WorkflowPlan {
    /// Builds the plan from checked nodes and edges.
    pub(super) fn new(source: &PlanSource<'_>) -> Self {
        let (plan, _) = Self::with_faults(source);
        plan
    }

    /// Builds the plan, and reports errors in the data flow.
    pub(super) fn with_faults(source: &PlanSource<'_>) -> (Self, Vec<DataFlowError>) {
        let PlanSource { graph, checkpoints, on_cancel, max_iterations } = *source;
        let ExpandedGraph { nodes, edges, entry_point } = graph;
        let numbers: BTreeMap<&Name, usize> =
            nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
        // Every name was checked, so the fallback is never used.
        let number = |name: &Name| numbers.get(name).copied().unwrap_or(0);
        let mut plan = Self {
            nodes: nodes.iter().map(|node| PlanNode::new(node, checkpoints)).collect(),
            edges: Vec::new(),
            links: Vec::new(),
            entry: number(entry_point),
            on_cancel: on_cancel.map(number),
            max_iterations,
        };
        for (index, node) in nodes.iter().enumerate() {
            if let WorkflowNodeKind::Parallel { branches, .. } = &node.kind {
                plan.nodes[index].branches = branches.iter().map(number).collect();
                for branch in branches.iter().map(number) {
                    plan.nodes[branch].branch_of = Some(index);
                }
            }
        }
        for edge in edges {
            plan.add_edge(edge, number);
        }
        for (from, node) in nodes.iter().enumerate() {
            if let Some(to) = &node.on_error {
                plan.add_error_link(from, number(to), None);
            }
        }
        plan.mark_links_back();
        let faults = plan.add_data_links();
        plan.add_compensations(nodes);
        plan.sort();
        (plan, faults)
    }

    fn add_compensations(&mut self, nodes: &[WorkflowNode]) {
        for (index, node) in nodes.iter().enumerate() {
            if let Some(compensation) = &node.compensate {
                self.nodes[index].compensation = Some(self.nodes.len());
                let mut planned = PlanNode::new(compensation, &[]);
                planned.compensates = Some(index);
                self.nodes.push(planned);
            }
        }
    }

    fn add_error_link(&mut self, from: usize, to: usize, edge: Option<usize>) -> usize {
        self.links.push(PlanLink { from, to, kind: LinkKind::Error, edge, is_back: false });
        self.links.len() - 1
    }

    fn add_edge(&mut self, edge: &WorkflowEdge, number: impl Fn(&Name) -> usize) {
        let (from, index) = (number(&edge.from), self.edges.len());
        let first = self.links.len();
        let mut link = |to: &Name| {
            let to = number(to);
            // Two keys may lead to one node: that is one link.
            if let Some(known) = self.links[first..].iter().position(|link| link.to == to) {
                return first + known;
            }
            self.links.push(PlanLink {
                from,
                to,
                kind: LinkKind::Edge,
                edge: Some(index),
                is_back: false,
            });
            self.links.len() - 1
        };
        let target = match &edge.to {
            EdgeTarget::Node(to) => PlanTarget::Node(link(to)),
            EdgeTarget::ByRoutingKey { nodes, default } => PlanTarget::ByRoutingKey {
                links: nodes.iter().map(|(key, to)| (key.clone(), link(to))).collect(),
                default: default.as_ref().map(link),
            },
        };
        let on_error = edge.on_error.as_ref().map(&number);
        let on_error = on_error.map(|to| self.add_error_link(from, to, Some(index)));
        self.edges.push(PlanEdge {
            condition: edge.condition.clone(),
            max_loops: edge.max_loops,
            target,
            on_error,
        });
        self.nodes[from].edges.push(index);
    }

    /// Marks links back: limited links whose start is reachable from their end.
    fn mark_links_back(&mut self) {
        let all = self.successors(|_| true);
        for index in 0..self.links.len() {
            let PlanLink { from, to, edge, .. } = self.links[index];
            let is_limited = edge.is_some_and(|edge| self.edges[edge].max_loops.is_some());
            self.links[index].is_back = is_limited && graph::reachable(&all, to)[from];
        }
    }

    /// The successors of each node by the selected links.
    fn successors(&self, which: impl Fn(&PlanLink) -> bool) -> Vec<Vec<usize>> {
        let mut successors: Vec<Vec<usize>> =
            self.nodes.iter().map(|node| node.branches.clone()).collect();
        for link in self.links.iter().filter(|link| which(link)) {
            successors[link.from].push(link.to);
            // Successors of a parallel node come after its branches.
            for branch in &self.nodes[link.from].branches {
                successors[*branch].push(link.to);
            }
        }
        successors
    }

    /// Marks the nodes that are reachable from the first.
    pub(super) fn reached(&self) -> Vec<bool> {
        graph::reachable(&self.successors(|_| true), self.entry)
    }

    /// Marks the nodes that only a cancellation reaches.
    pub(super) fn reached_by_cancel(&self) -> Option<Vec<bool>> {
        Some(graph::reachable(&self.successors(|_| true), self.on_cancel?))
    }

    /// The nodes, in file order.
    pub fn nodes(&self) -> &[PlanNode] {
        &self.nodes
    }

    /// The edges, in file order.
    pub fn edges(&self) -> &[PlanEdge] {
        &self.edges
    }

    /// The links.
    pub fn links(&self) -> &[PlanLink] {
        &self.links
    }

    /// The node that runs first.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// The node that runs when the workflow is cancelled.
    pub fn on_cancel(&self) -> Option<usize> {
        self.on_cancel
    }

    /// The most node runs of one task.
    pub fn max_iterations(&self) -> NonZeroU32 {
        self.max_iterations
    }

    /// The number of a node.
    pub fn number(&self, name: &Name) -> Option<usize> {
        self.nodes.iter().position(|node| node.node.name == *name)
    }

    /// The time limit of a node: its own, and no longer than that of the parallel nodes around it.
    pub fn timeout_seconds(&self, node: usize) -> Option<NonZeroU64> {
        self.time_limit(node).map(|(seconds, _)| seconds)
    }

    /// The time limit of a node, and the node that sets it.
    pub fn time_limit(&self, node: usize) -> Option<(NonZeroU64, &Name)> {
        let PlanNode { node, branch_of, .. } = &self.nodes[node];
        let own = node.timeout_seconds.map(|seconds| (seconds, &node.name));
        let above = branch_of.and_then(|parallel| self.time_limit(parallel));
        [own, above].into_iter().flatten().min_by_key(|(seconds, _)| *seconds)
    }

    /// True if the workflow ends with this node, whose output is then the result.
    pub fn is_end(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        let leads_on = |link: &usize| self.links[*link].kind != LinkKind::Error;
        !node.links_out.iter().any(leads_on)
            && node.branch_of.is_none()
            && node.compensates.is_none()
    }

    /// The edge back among these links, if its target alone does not identify it.
    pub fn edge_back(&self, taken: &[usize]) -> Option<u32> {
        let back = self.links[taken.iter().copied().find(|link| self.links[*link].is_back)?];
        let is_same = |link: &&usize| self.links[**link].to == back.to;
        let is_alone = self.nodes[back.from].links_out.iter().filter(is_same).count() < 2;
        let edge = back.edge.filter(|_| !is_alone)?;
        u32::try_from(edge).ok()
    }

    /// True if a node has a compensation.
    pub fn has_compensations(&self) -> bool {
        self.nodes.last().is_some_and(|node| node.compensates.is_some())
    }

    /// The link to take when a node fails: that of the edge whose condition failed, the node's own,
    /// or the first of its edges.
    pub fn error_link(&self, node: usize, edge: Option<usize>) -> Option<usize> {
        let links = || {
            let links = self.nodes[node].links_out.iter().copied();
            links.filter(|link| self.links[*link].kind == LinkKind::Error)
        };
        let of_edge = edge.and_then(|_| links().find(|link| self.links[*link].edge == edge));
        of_edge
            .or_else(|| links().find(|link| self.links[*link].edge.is_none()))
            .or_else(|| links().min_by_key(|link| self.links[*link].edge))
    }

    /// The node and its descendants, which run again after a link back.
    pub fn from_on(&self, node: usize) -> Vec<usize> {
        let reached = graph::reachable(&self.successors(|link| !link.is_back), node);
        (0..self.nodes.len()).filter(|node| reached[*node]).collect()
    }
}

impl PlanNode {
    fn new(node: &WorkflowNode, checkpoints: &[Name]) -> Self {
        Self {
            node: node.clone(),
            edges: Vec::new(),
            links_out: Vec::new(),
            links_in: Vec::new(),
            branches: Vec::new(),
            branch_of: None,
            compensation: None,
            compensates: None,
            rank: 0,
            pauses: checkpoints.contains(&node.name),
        }
    }

    /// The node's name.
    pub fn name(&self) -> &Name {
        &self.node.name
    }

    /// True if it runs a step for every item of a list.
    pub fn is_map(&self) -> bool {
        matches!(self.node.kind, WorkflowNodeKind::Map { .. })
    }

    /// The join condition, if it is a parallel node.
    pub fn join(&self) -> Option<JoinMode> {
        match &self.node.kind {
            WorkflowNodeKind::Parallel { join, .. } => Some(*join),
            WorkflowNodeKind::Agent { .. }
            | WorkflowNodeKind::Tool { .. }
            | WorkflowNodeKind::Condition { .. }
            | WorkflowNodeKind::Human { .. }
            | WorkflowNodeKind::Workflow { .. }
            | WorkflowNodeKind::Script { .. }
            | WorkflowNodeKind::Map { .. } => None,
        }
    }
}
