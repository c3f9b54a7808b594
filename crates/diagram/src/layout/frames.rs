//! Nested nodes: the inside is laid out first, and its frame is then a node like any other.
//!
//! An edge that crosses a frame does so at a port, which is a node without a size inside. Edges
//! that lead on leave frames below and enter them above; those that lead back do the reverse.

use std::collections::BTreeMap;

use super::{EdgeRoute, GraphLayout, LayoutEdge, LayoutRect, NodeBox, NodeOutline, lay_out};

/// The space between a frame and its inside.
const PADDING: f64 = 20.0;

/// The nesting of a node.
#[derive(Clone, Copy, Default)]
pub(in super::super) struct FrameMember {
    /// The frame that it is inside of.
    pub(in super::super) parent: Option<usize>,
    /// Width and height of the header, if it is a frame.
    pub(in super::super) header: Option<(f64, f64)>,
}

/// Lays out a graph like [`lay_out`], with frames around inner nodes.
pub(in super::super) fn lay_out_frames(
    boxes: &mut [NodeBox],
    nesting: &[FrameMember],
    layout_edges: &[LayoutEdge],
    wishes: &[(usize, usize)],
) -> GraphLayout {
    let mut frames = FrameLayout { boxes, nesting, layout_edges, levels: BTreeMap::new() };
    let whole = frames.level(None, wishes);
    let (width, height) = (whole.layout.width, whole.layout.height);
    let mut sheet = FrameSheet {
        areas: vec![LayoutRect { x: 0.0, y: 0.0, width: 0.0, height: 0.0 }; nesting.len()],
        pieces: vec![EdgePieces::default(); layout_edges.len()],
    };
    sheet.put(&frames, &whole, (0.0, 0.0), None);
    let routes = sheet.pieces.into_iter().map(EdgePieces::joined).collect();
    GraphLayout { nodes: sheet.areas, routes, width, height }
}

struct FrameLayout<'a> {
    boxes: &'a mut [NodeBox],
    nesting: &'a [FrameMember],
    layout_edges: &'a [LayoutEdge],
    /// The inside of each frame.
    levels: BTreeMap<usize, FrameLevel>,
}

/// The inside of a frame, or the whole.
struct FrameLevel {
    /// Its nodes, which come first in its layout.
    members: Vec<usize>,
    /// The edge of each route; none for a route that is not drawn.
    edges: Vec<Option<(usize, EdgePiece)>>,
    /// The horizontal offsets at which edges cross the frame.
    ports: BTreeMap<usize, f64>,
    layout: GraphLayout,
}

/// A piece of an edge, seen from the level that contains both ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EdgePiece {
    Begin,
    Middle,
    End,
}

impl FrameLayout<'_> {
    fn level(&mut self, parent: Option<usize>, wishes: &[(usize, usize)]) -> FrameLevel {
        let members: Vec<usize> =
            (0..self.nesting.len()).filter(|node| self.nesting[*node].parent == parent).collect();
        for &member in &members {
            if let Some(header) = self.nesting[member].header {
                let level = self.level(Some(member), &[]);
                self.fit(member, header, level);
            }
        }
        let mut boxes: Vec<NodeBox> = members.iter().map(|node| self.boxes[*node]).collect();
        let mut layout_edges = Vec::new();
        let mut edges = Vec::new();
        let mut ports = Vec::new();
        let mut wishes = wishes.to_vec();
        for (edge, layout_edge) in self.layout_edges.iter().enumerate() {
            let place = |node| members.iter().position(|member| *member == node);
            let (from, to) = (
                self.inside(parent, layout_edge.from).and_then(place),
                self.inside(parent, layout_edge.to).and_then(place),
            );
            let is_end =
                parent.is_some_and(|parent| parent == layout_edge.from || parent == layout_edge.to);
            let port = boxes.len();
            let (from, to, side) = match (from, to) {
                (Some(from), Some(to)) if from != to || layout_edge.from == layout_edge.to => {
                    (from, to, EdgePiece::Middle)
                }
                (Some(from), None) => {
                    (from, port, if is_end { EdgePiece::Middle } else { EdgePiece::Begin })
                }
                (None, Some(to)) => {
                    (port, to, if is_end { EdgePiece::Middle } else { EdgePiece::End })
                }
                // An edge of the frame itself only needs a port at its side.
                (None, None) if is_end && layout_edge.from != layout_edge.to => {
                    (port, port, EdgePiece::Middle)
                }
                // Both ends are in the same member, or both are outside the frame.
                (Some(_), Some(_)) | (None, None) => continue,
            };
            if from == port || to == port {
                let begins = if from == to { parent == Some(layout_edge.from) } else { to == port };
                if begins != layout_edge.leads_back {
                    wishes.extend((0..members.len()).map(|member| (member, port)));
                }
                boxes.push(NodeBox {
                    width: 0.0,
                    height: 0.0,
                    outline: NodeOutline::Box,
                    beside: 0.0,
                });
                ports.push((edge, port));
            }
            if from != port || to != port {
                let label = layout_edge.label.filter(|_| side == EdgePiece::Middle);
                let at = |place: usize| self.port(members.get(place).copied(), edge);
                let (from_at, to_at) = (at(from), at(to));
                let leads_back = layout_edge.leads_back;
                layout_edges.push(LayoutEdge { from, to, leads_back, label, from_at, to_at });
                edges.push(Some((edge, side)));
            } else if !members.is_empty() {
                // An unconnected node would be placed far away from all others.
                let is_below = (parent == Some(layout_edge.from)) != layout_edge.leads_back;
                let (from, to) = if is_below { (0, port) } else { (port, 0) };
                let (label, from_at, to_at) = (None, None, None);
                layout_edges.push(LayoutEdge {
                    from,
                    to,
                    leads_back: false,
                    label,
                    from_at,
                    to_at,
                });
                edges.push(None);
            }
        }
        let layout = lay_out(&boxes, &layout_edges, &wishes);
        let ports = ports.into_iter().map(|(edge, port)| (edge, layout.nodes[port].x)).collect();
        FrameLevel { members, edges, ports, layout }
    }

    /// Fits a frame to its inside.
    fn fit(&mut self, frame: usize, header: (f64, f64), mut level: FrameLevel) {
        let even = |size: f64| (size / 2.0).ceil() * 2.0;
        let width = even(level.layout.width.max(header.0) + 2.0 * PADDING);
        let node_box = &mut self.boxes[frame];
        (node_box.width, node_box.height) = (width, even(level.layout.height + header.1 + PADDING));
        let left = ((width - level.layout.width) / 2.0).floor();
        for port in level.ports.values_mut() {
            *port += left - width / 2.0;
        }
        self.levels.insert(frame, level);
    }

    fn port(&self, frame: Option<usize>, edge: usize) -> Option<f64> {
        self.levels.get(&frame?)?.ports.get(&edge).copied()
    }

    /// The node directly inside of a frame that a node is, or is inside of.
    fn inside(&self, frame: Option<usize>, node: usize) -> Option<usize> {
        around(self.nesting, node).find(|node| self.nesting[*node].parent == frame)
    }
}

/// A node, the frame around it, the one around that, and so on.
pub(in super::super) fn around(
    nesting: &[FrameMember],
    node: usize,
) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(node), |node| nesting[*node].parent)
}

/// The final positions.
struct FrameSheet {
    areas: Vec<LayoutRect>,
    pieces: Vec<EdgePieces>,
}

/// The pieces of an edge, each side from the outside in.
#[derive(Clone, Default)]
struct EdgePieces {
    begin: Vec<EdgeRoute>,
    middle: Option<EdgeRoute>,
    end: Vec<EdgeRoute>,
}

impl EdgePieces {
    fn joined(self) -> Option<EdgeRoute> {
        let label = self.middle.as_ref().and_then(|middle| middle.label);
        let pieces = self.begin.into_iter().rev().chain(self.middle).chain(self.end);
        let points: Vec<_> = pieces.flat_map(|piece| piece.points).collect();
        (!points.is_empty()).then_some(EdgeRoute { points, label })
    }
}

impl FrameSheet {
    /// Moves a level and its frames to their final positions. `around` is the enclosing frame, with
    /// its upper and lower side.
    fn put(
        &mut self,
        frames: &FrameLayout<'_>,
        level: &FrameLevel,
        (left, top): (f64, f64),
        around: Option<(usize, (f64, f64))>,
    ) {
        let moved = |area: LayoutRect| LayoutRect { x: area.x + left, y: area.y + top, ..area };
        for (edge, route) in level.edges.iter().zip(&level.layout.routes) {
            let (Some((edge, side)), Some(route)) = (edge, route) else { continue };
            let mut points: Vec<_> =
                route.points.iter().map(|(x, y)| (x + left, y + top)).collect();
            // An edge between a frame and its own inside begins or ends at the frame.
            let layout_edge = &frames.layout_edges[*edge];
            if let (Some((frame, (upper, _))), Some(&(x, _))) = (around, points.first())
                && frame == layout_edge.from
            {
                points.insert(0, (x, upper));
            }
            if let (Some((frame, (_, lower))), Some(&(x, _))) = (around, points.last())
                && frame == layout_edge.to
            {
                points.push((x, lower));
            }
            let route = EdgeRoute { points, label: route.label.map(moved) };
            let pieces = &mut self.pieces[*edge];
            match side {
                EdgePiece::Begin => pieces.begin.push(route),
                EdgePiece::Middle => pieces.middle = Some(route),
                EdgePiece::End => pieces.end.push(route),
            }
        }
        for (member, area) in level.members.iter().zip(&level.layout.nodes) {
            let area = moved(*area);
            self.areas[*member] = area;
            let header = frames.nesting[*member].header;
            if let (Some(inside), Some((_, header))) = (frames.levels.get(member), header) {
                let left = area.x - area.width / 2.0;
                let left = left + ((area.width - inside.layout.width) / 2.0).floor();
                let (upper, lower) = (area.y - area.height / 2.0, area.y + area.height / 2.0);
                let around = Some((*member, (upper, lower)));
                self.put(frames, inside, (left, upper + header), around);
            }
        }
    }
}
