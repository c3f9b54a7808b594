//! States and what leads from one to another, drawn like a workflow.

use super::layout::ranks;
use super::text::one_line;
use super::{EdgeKind, Picture, PictureEdge, PictureNode, Shape, dot, svg};

/// A chart to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePicture {
    /// The chart's name.
    pub name: String,
    /// The states.
    pub states: Vec<DrawnState>,
    /// What leads from one to another.
    pub arrows: Vec<DrawnArrow>,
    /// The state that is the first, by its place.
    pub initial: usize,
}

/// A state to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnState {
    /// Its name.
    pub name: String,
    /// What else is worth knowing; may be empty.
    pub note: String,
}

/// An arrow to draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnArrow {
    /// Where it begins, by the state's place.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// What is written on it, line by line.
    pub labels: Vec<String>,
}

impl StatePicture {
    /// The chart as an SVG picture.
    pub fn to_svg(&self) -> String {
        svg::write(&self.picture(&self.names()))
    }

    /// The chart in DOT, the language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::write(&self.picture(&self.names()))
    }

    /// Names of states may hold what the formats do not take in a name.
    fn names(&self) -> Vec<String> {
        let plain =
            |state: &DrawnState| one_line(&state.name).replace(['"', '\\', '<', '>', '&'], "_");
        self.states.iter().map(plain).collect()
    }

    fn picture<'a>(&'a self, names: &'a [String]) -> Picture<'a> {
        let ends: Vec<_> = self.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        let leading_back = ranks::leading_back(names.len(), self.initial, &ends);
        let nodes = names.iter().zip(&self.states).map(|(name, state)| PictureNode {
            name,
            shape: Shape::State,
            uses: one_line(&state.note),
            is_checkpoint: false,
            mark: None,
        });
        let edges = self.arrows.iter().zip(leading_back).map(|(arrow, leads_back)| PictureEdge {
            from: arrow.from,
            to: arrow.to,
            kind: if leads_back { EdgeKind::Back } else { EdgeKind::Way },
            labels: arrow.labels.iter().map(|label| one_line(label)).collect(),
        });
        Picture {
            what: "Chart",
            name: &self.name,
            nodes: nodes.collect(),
            edges: edges.collect(),
            entry: self.initial,
            is_marked: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lamp() -> StatePicture {
        let state = |name: &str, note: &str| DrawnState { name: name.into(), note: note.into() };
        let arrow = |from, to, label: &str| DrawnArrow { from, to, labels: vec![label.into()] };
        StatePicture {
            name: "lamp".to_owned(),
            states: vec![state("off", ""), state("on \"bright\"", "has a bulb")],
            arrows: vec![
                arrow(0, 1, "press [agent.volts > 3 && x < \"a\"]"),
                arrow(1, 0, "press"),
                arrow(1, 1, "look"),
            ],
            initial: 0,
        }
    }

    #[test]
    fn states_and_arrows_are_seen_in_a_picture() {
        let svg = lamp().to_svg();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for seen in ["Chart lamp", ">off<", "on _bright_", "has a bulb", "press", "look", "&lt;"] {
            assert!(svg.contains(seen), "{seen}\n{svg}");
        }
        assert_eq!(open_elements(&svg), 0, "every element is closed");
    }

    /// How many elements are open at the end.
    fn open_elements(svg: &str) -> i32 {
        let tags = svg.split('<').skip(1);
        tags.map(|tag| match (tag.starts_with('/'), tag.split('>').next()) {
            (true, _) => -1,
            (false, Some(tag)) if tag.ends_with('/') => 0,
            (false, _) => 1,
        })
        .sum()
    }

    #[test]
    fn states_and_arrows_are_written_in_dot() {
        let dot = lamp().to_dot();
        assert!(dot.starts_with("digraph \"lamp\" {"), "{dot}");
        assert!(dot.contains("\"off\" -> \"on _bright_\""), "{dot}");
        assert!(dot.contains("label=\"off\""), "{dot}");
        assert!(dot.contains("\\\"a\\\""), "{dot}");
    }
}
