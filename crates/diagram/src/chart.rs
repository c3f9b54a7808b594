//! Diagrams of statecharts. Composite states are frames around their inner states.

mod convert;

#[cfg(test)]
mod tests;

pub use self::convert::{chart_diagram, state_actions};

use super::graph::{DiagramEdge, DiagramGraph, DiagramNode, EdgeKind, NodeShape};
use super::layout::frames::{FrameMember, around};
use super::layout::ranks;
use super::text::{one_line, wrapped};
use super::{dot, svg};

/// The most characters of a line of a label or note.
const LINE_MAX: usize = 36;

/// A chart to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartDiagram {
    /// The chart's name.
    pub name: String,
    /// The states.
    pub states: Vec<ChartDiagramState>,
    /// The arrows.
    pub arrows: Vec<ChartDiagramArrow>,
    /// The initial state, by index.
    pub initial: usize,
}

/// A state to draw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartDiagramState {
    /// Its name.
    pub name: String,
    /// The notes, such as entry actions.
    pub notes: Vec<String>,
    /// The containing state, by index.
    pub parent: Option<usize>,
    /// The inner state that is entered first.
    pub initial: Option<usize>,
    /// True if the inner state that was left last is entered again.
    pub history: bool,
}

/// An arrow to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartDiagramArrow {
    /// The source state, by index.
    pub from: usize,
    /// The target state, by index.
    pub to: usize,
    /// The labels: the trigger, guard and actions of each transition.
    pub labels: Vec<Vec<String>>,
}

impl ChartDiagram {
    /// The chart as an SVG picture.
    pub fn to_svg(&self) -> String {
        svg::write(&self.graph(&self.names()))
    }

    /// The chart in DOT, the language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::write(&self.graph(&self.names()))
    }

    /// The names of the states, the start and the initial marks, without characters that formats
    /// reserve.
    fn names(&self) -> Vec<String> {
        let plain = |state: &ChartDiagramState| {
            one_line(&state.name).replace(['"', '\\', '<', '>', '&'], "_")
        };
        let names: Vec<String> = self.states.iter().map(plain).collect();
        let marks = self.begins().map(|(state, _)| format!("(first in {})", names[state]));
        names.iter().cloned().chain(["(start)".to_owned()]).chain(marks).collect()
    }

    /// The composite states, each with its initial state.
    fn begins(&self) -> impl Iterator<Item = (usize, usize)> {
        let states = self.states.iter().enumerate();
        states.filter_map(|(number, state)| Some((number, state.initial?)))
    }

    fn graph<'a>(&'a self, names: &'a [String]) -> DiagramGraph<'a> {
        let start = self.states.len();
        let mut names = names.iter();
        let mut node = |shape: NodeShape, notes: &[String], parent: Option<usize>| DiagramNode {
            name: names.next().map_or("", String::as_str),
            shape,
            uses: String::new(),
            notes: notes.iter().flat_map(|note| wrapped(&one_line(note), LINE_MAX)).collect(),
            parent,
            is_checkpoint: false,
            mark: None,
        };
        let mut nodes: Vec<_> = self
            .states
            .iter()
            .map(|state| {
                let shape =
                    if state.initial.is_some() { NodeShape::Frame } else { NodeShape::State };
                node(shape, &state.notes, state.parent)
            })
            .collect();
        nodes.push(node(NodeShape::Initial, &[], None));
        let mut ends = vec![(start, self.initial)];
        for (state, initial) in self.begins() {
            let shape =
                if self.states[state].history { NodeShape::History } else { NodeShape::Initial };
            ends.push((nodes.len(), initial));
            nodes.push(node(shape, &[], Some(state)));
        }
        let labels = ends.iter().map(|_| Vec::new()).chain(self.arrows.iter().map(lines));
        let labels: Vec<Vec<String>> = labels.collect();
        ends.extend(self.arrows.iter().map(|arrow| (arrow.from, arrow.to)));
        let back_edges = find_back_edges(&nodes, &ends);
        let edges = ends.into_iter().zip(labels).zip(back_edges);
        let edges = edges.map(|(((from, to), labels), leads_back)| {
            let kind = if leads_back { EdgeKind::Back } else { EdgeKind::Forward };
            DiagramEdge { from, to, kind, labels }
        });
        DiagramGraph {
            what: "Chart",
            name: &self.name,
            edges: edges.collect(),
            nodes,
            entry: None,
            is_marked: false,
        }
    }
}

/// The lines of a label. A transition that is too long for one line is split into its parts.
fn lines(arrow: &ChartDiagramArrow) -> Vec<String> {
    let transition = |parts: &Vec<String>| {
        let whole = one_line(&parts.join(" "));
        if whole.chars().count() <= LINE_MAX {
            return vec![whole];
        }
        parts.iter().flat_map(|part| wrapped(&one_line(part), LINE_MAX)).collect()
    };
    arrow.labels.iter().flat_map(transition).collect()
}

/// Marks the back edges, on the level where both ends, or the frames around them, are siblings.
fn find_back_edges(nodes: &[DiagramNode<'_>], edges: &[(usize, usize)]) -> Vec<bool> {
    let nesting: Vec<FrameMember> =
        nodes.iter().map(|node| FrameMember { parent: node.parent, header: None }).collect();
    let mut levels = std::collections::BTreeMap::<Option<usize>, Vec<(usize, usize, usize)>>::new();
    for (edge, (from, to)) in edges.iter().enumerate() {
        let (from, to): (Vec<usize>, Vec<usize>) =
            (around(&nesting, *from).collect(), around(&nesting, *to).collect());
        let side_by_side = from.iter().find_map(|outer| {
            let beside =
                to.iter().find(|other| nesting[**other].parent == nesting[*outer].parent)?;
            Some((*outer, *beside))
        });
        // An edge between a frame and its inside is not a back edge.
        if let Some((outer, beside)) = side_by_side.filter(|(a, b)| a != b || from[0] == to[0]) {
            levels.entry(nesting[outer].parent).or_default().push((edge, outer, beside));
        }
    }
    let mut back = vec![false; edges.len()];
    for (parent, members) in levels {
        let first = |node: &DiagramNode<'_>| {
            node.parent == parent && matches!(node.shape, NodeShape::Initial | NodeShape::History)
        };
        let entry = nodes.iter().position(first).unwrap_or(0);
        let ends: Vec<_> = members.iter().map(|(_, from, to)| (*from, *to)).collect();
        let found = ranks::find_back_edges(nodes.len(), entry, &ends);
        for ((edge, ..), leads_back) in members.into_iter().zip(found) {
            back[edge] = leads_back;
        }
    }
    back
}
