//! The content of a diagram: nodes, edges and colours, for all formats.

use std::collections::BTreeMap;

use polity_model::machine::node::NodeState;
use polity_model::name::Name;

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

    pub(crate) fn colours(self) -> NodeColours {
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

pub(crate) const DARK_TEXT: &str = "#1f2328";
/// A grey that is visible on white and on black.
pub(crate) const EDGE_LINE: &str = "#7d8590";
/// The colour of error edges.
pub(crate) const ERROR_LINE: &str = "#cf222e";
pub(crate) const CHECKPOINT_LINE: &str = "#8250df";

/// Colours of a node. Text has its own background, so that diagrams are readable on light and dark
/// pages.
#[derive(Clone, Copy)]
pub(crate) struct NodeColours {
    pub(crate) fill: &'static str,
    pub(crate) line: &'static str,
    pub(crate) text: &'static str,
}

/// The content of a diagram, for all formats.
pub(crate) struct DiagramGraph<'a> {
    /// `Workflow` or `Chart`.
    pub(crate) what: &'static str,
    pub(crate) name: &'a str,
    pub(crate) nodes: Vec<DiagramNode<'a>>,
    pub(crate) edges: Vec<DiagramEdge>,
    /// The first node, unless a start node leads to it.
    pub(crate) entry: Option<usize>,
    pub(crate) is_marked: bool,
}

pub(crate) struct DiagramNode<'a> {
    pub(crate) name: &'a str,
    pub(crate) shape: NodeShape,
    /// The agent, tool, workflow, expression, question or join, on one line and in full.
    pub(crate) uses: String,
    /// The notes of a state, line by line.
    pub(crate) notes: Vec<String>,
    /// The containing node.
    pub(crate) parent: Option<usize>,
    pub(crate) is_checkpoint: bool,
    pub(crate) mark: Option<NodeMark>,
}

/// A node's type, which decides its shape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeShape {
    Agent,
    Tool,
    Script,
    Condition,
    Human,
    Parallel,
    Map,
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
pub(crate) struct DiagramEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) kind: EdgeKind,
    /// The labels, line by line and in full.
    pub(crate) labels: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeKind {
    /// Leads on.
    Forward,
    /// Leads from a parallel node to one of its branches.
    Branch,
    /// Leads back to a node that ran before.
    Back,
    /// Leads to the node that handles a failure or undoes the node.
    Error,
}

impl NodeShape {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::Script => "script",
            Self::Condition => "condition",
            Self::Human => "human",
            Self::Parallel => "parallel",
            Self::Map => "map",
            Self::Workflow => "workflow",
            Self::State | Self::Frame => "state",
            Self::Initial => "initial",
            Self::History => "history",
        }
    }
}

impl DiagramNode<'_> {
    pub(crate) fn colours(&self) -> NodeColours {
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
            (None, _) => NodeColours { fill: "#f6f8fa", line: "#59636e", text: DARK_TEXT },
        }
    }

    /// The type, and the mark in a word.
    pub(crate) fn kind(&self) -> String {
        let shape = self.shape.label();
        self.mark.map_or_else(|| shape.to_owned(), |mark| format!("{shape} · {}", mark.label()))
    }
}
