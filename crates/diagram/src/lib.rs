//! Diagrams of workflows, statecharts and state machines: SVG, Mermaid and DOT.
//!
//! A `graph` holds the content of a diagram, once for all formats. `svg`, `mermaid` and `dot` write
//! it; only `svg` needs a `layout`, other formats are laid out by their viewers.

mod chart;
mod dot;
mod graph;
mod layout;
mod mermaid;
mod svg;
mod text;
mod workflow;

#[cfg(test)]
mod tests;

pub use self::chart::{
    ChartDiagram, ChartDiagramArrow, ChartDiagramState, chart_diagram, state_actions,
};
pub use self::graph::{GraphFormat, NodeMark, NodeMarks};
pub use self::mermaid::{chart_to_mermaid, machine_to_mermaid};
pub use self::workflow::draw_workflow;
