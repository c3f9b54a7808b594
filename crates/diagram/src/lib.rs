//! Diagrams of workflows, statecharts and state machines: SVG, Mermaid and DOT.
//!
//! The content of a diagram is decided once for all formats. `svg`, `mermaid` and `dot` write it;
//! only `svg` needs a `layout`, other formats are laid out by their viewers.

mod chart;
mod chart_mermaid;
mod dot;
mod layout;
mod machine;
mod mermaid;
mod states;
mod svg;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use polity_definition::{
    EdgeTarget, JoinMode, WorkflowDefinition, WorkflowEdge, WorkflowNode, WorkflowNodeKind,
    WorkflowPlan,
};
use polity_model::machine::node::NodeState;
use polity_model::name::Name;

pub use self::chart::{chart_diagram, state_actions};
pub use self::chart_mermaid::chart_to_mermaid;
pub use self::machine::machine_to_mermaid;
pub use self::states::{ChartDiagram, ChartDiagramArrow, ChartDiagramState};

use self::layout::ranks;
use self::text::one_line;

/// The output format of a diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GraphFormat {
    /// A self-contained image.
    Svg,
    /// Text that many web pages and editors render.
    Mermaid,
    /// The format of Graphviz.
    Dot,
}

impl GraphFormat {
    /// The format as it is named on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Mermaid => "mermaid",
            Self::Dot => "dot",
        }
    }
}

/// The progress of a node, for the diagram of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeMark {
    /// Completed.
    Done,
    /// In progress.
    Running,
    /// Waiting for a person.
    Waiting,
    /// It failed.
    Failed,
    /// Not needed, or no longer reachable.
    Skipped,
}

impl NodeMark {
    /// Every mark, in the order of the legend.
    pub const ALL: [Self; 5] =
        [Self::Done, Self::Running, Self::Waiting, Self::Failed, Self::Skipped];

    /// The mark of a node in this state; none if it has not started.
    pub fn of(state: NodeState) -> Option<Self> {
        match state {
            NodeState::Waiting => None,
            NodeState::Running => Some(Self::Running),
            NodeState::Asking => Some(Self::Waiting),
            NodeState::Done => Some(Self::Done),
            NodeState::Failed => Some(Self::Failed),
            NodeState::Dropped | NodeState::Skipped => Some(Self::Skipped),
        }
    }

    /// The mark in a word, for readers who do not see the colours.
    pub fn label(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    fn colours(self) -> NodeColours {
        let (fill, line, text) = match self {
            Self::Done => ("#d3f3dd", "#1a7f37", DARK_TEXT),
            Self::Running => ("#d6e9ff", "#0969da", DARK_TEXT),
            Self::Waiting => ("#fff1c2", "#9a6700", DARK_TEXT),
            Self::Failed => ("#ffdfdc", "#cf222e", DARK_TEXT),
            Self::Skipped => ("#ffffff", "#d1d9e0", "#6e7781"),
        };
        NodeColours { fill, line, text }
    }
}

/// The marks of nodes by name. A node without one is drawn plainly.
pub type NodeMarks = BTreeMap<Name, NodeMark>;

const DARK_TEXT: &str = "#1f2328";
/// A grey that is visible on white and on black.
const EDGE_LINE: &str = "#7d8590";
const CHECKPOINT_LINE: &str = "#8250df";

/// Colours of a node. Text has its own background, so that diagrams are readable on light and dark
/// pages.
#[derive(Clone, Copy)]
struct NodeColours {
    fill: &'static str,
    line: &'static str,
    text: &'static str,
}

/// The content of a diagram, for all formats.
struct DiagramGraph<'a> {
    /// `Workflow` or `Chart`.
    what: &'static str,
    name: &'a str,
    nodes: Vec<DiagramNode<'a>>,
    edges: Vec<DiagramEdge>,
    /// The first node, unless a start node leads to it.
    entry: Option<usize>,
    is_marked: bool,
}

struct DiagramNode<'a> {
    name: &'a str,
    shape: NodeShape,
    /// The agent, tool, workflow, expression, question or join, on one line and in full.
    uses: String,
    /// The notes of a state, line by line.
    notes: Vec<String>,
    /// The containing node.
    parent: Option<usize>,
    is_checkpoint: bool,
    mark: Option<NodeMark>,
}

/// A node's type, which decides its shape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeShape {
    Agent,
    Tool,
    Condition,
    Human,
    Parallel,
    Workflow,
    State,
    /// A composite state: a frame around its inner states.
    Frame,
    /// The start of a chart or of a composite state.
    Initial,
    /// The same, with history.
    History,
}

/// One arrow. An edge that maps routing keys to nodes has an arrow for each key.
struct DiagramEdge {
    from: usize,
    to: usize,
    kind: EdgeKind,
    /// The labels, line by line and in full.
    labels: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgeKind {
    /// Leads on.
    Forward,
    /// Leads from a parallel node to one of its branches.
    Branch,
    /// Leads back to a node that ran before.
    Back,
}

impl NodeShape {
    fn label(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Condition => "condition",
            Self::Human => "human",
            Self::Parallel => "parallel",
            Self::Workflow => "workflow",
            Self::State | Self::Frame => "state",
            Self::Initial => "initial",
            Self::History => "history",
        }
    }
}

impl DiagramNode<'_> {
    fn colours(&self) -> NodeColours {
        match (self.mark, self.shape) {
            (Some(mark), _) => mark.colours(),
            (None, NodeShape::Frame) => {
                NodeColours { fill: "#ffffff", line: "#59636e", text: DARK_TEXT }
            }
            (None, NodeShape::Initial) => {
                NodeColours { fill: EDGE_LINE, line: EDGE_LINE, text: DARK_TEXT }
            }
            (None, NodeShape::Parallel) => {
                NodeColours { fill: "#424a53", line: EDGE_LINE, text: "#ffffff" }
            }
            (
                None,
                NodeShape::Agent
                | NodeShape::Tool
                | NodeShape::Condition
                | NodeShape::Human
                | NodeShape::Workflow
                | NodeShape::State
                | NodeShape::History,
            ) => NodeColours { fill: "#f6f8fa", line: "#59636e", text: DARK_TEXT },
        }
    }

    /// The type, and the mark in a word.
    fn kind(&self) -> String {
        let shape = self.shape.label();
        self.mark.map_or_else(|| shape.to_owned(), |mark| format!("{shape} · {}", mark.label()))
    }
}

/// Draws a workflow, with a mark on each node that has one.
///
/// A workflow of patterns is drawn as what they expand to.
pub fn draw_workflow(
    workflow: &WorkflowDefinition,
    format: GraphFormat,
    marks: &NodeMarks,
) -> String {
    let picture = workflow_picture(workflow, marks);
    match format {
        GraphFormat::Svg => svg::write(&picture),
        GraphFormat::Mermaid => mermaid::write(&picture),
        GraphFormat::Dot => dot::write(&picture),
    }
}

fn workflow_picture<'a>(workflow: &'a WorkflowDefinition, marks: &NodeMarks) -> DiagramGraph<'a> {
    let graph = workflow.expanded();
    let numbers: BTreeMap<&Name, usize> =
        graph.nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
    // Every name was checked when the file was read, so the fallback is never used.
    let entry = numbers.get(graph.entry_point).copied().unwrap_or(0);
    let nodes: Vec<_> =
        graph.nodes.iter().map(|node| picture_node(workflow, node, marks)).collect();
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
        let mut way = |to: &Name, key: Option<&str>| {
            add(&edge.from, to, EdgeKind::Forward, edge_labels(edge, key), edge.max_loops);
        };
        match &edge.to {
            EdgeTarget::Node(to) => way(to, None),
            EdgeTarget::ByRoutingKey { nodes, default } => {
                for (key, to) in nodes {
                    way(to, Some(key));
                }
                if let Some(to) = default {
                    way(to, Some("default"));
                }
            }
        }
    }
    for link in
        workflow.plan().iter().flat_map(WorkflowPlan::links).filter(|link| link.edge.is_none())
    {
        let (from, to) = (&graph.nodes[link.from], &graph.nodes[link.to]);
        let read = from.outputs.iter().filter(|output| to.inputs.contains(output));
        let labels = read.map(|name| one_line(name.as_str())).collect();
        add(&from.name, &to.name, EdgeKind::Forward, labels, None);
    }
    let ends: Vec<_> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let leading_back = ranks::leading_back(nodes.len(), entry, &ends);
    for ((edge, limit), leads_back) in edges.iter_mut().zip(limits).zip(leading_back) {
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

fn picture_node<'a>(
    workflow: &WorkflowDefinition,
    node: &'a WorkflowNode,
    marks: &NodeMarks,
) -> DiagramNode<'a> {
    let (shape, uses) = match &node.kind {
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
    };
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
