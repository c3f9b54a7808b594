//! Layered layout, from the entry downwards.
//!
//! Nodes are in every second layer. Edges bend in all layers between their ends, each at a point of
//! its own, and curve only between layers; so they cross no node, and a label at a bend covers
//! nothing. Edges back are routed the same way upwards.

pub(super) mod frames;
mod order;
mod place;
pub(super) mod ranks;

use self::order::{LayerNeighbours, order};
use self::place::{ItemExtent, LayerLink, place};
use super::text::number;

/// The least distance between nodes, and between anything else.
const APART_NODES: f64 = 36.0;
const APART_BENDS: f64 = 14.0;
/// The upright piece at each end of an edge, which has room for the head of an arrow.
const UPRIGHT: f64 = 10.0;
/// The largest distance between two edges at the same side of a node.
const BETWEEN_ENDS_MAX: f64 = 24.0;
/// The space between layers: more if edges run far sideways, so that they are not too flat.
const SPACE_MIN: f64 = 14.0;
const SPACE_MAX: f64 = 56.0;
const SPACE_PER_SIDEWAYS: f64 = 0.12;

/// A node to place.
#[derive(Clone, Copy)]
pub(super) struct NodeBox {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) outline: NodeOutline,
    /// Room to keep free on its right, for edges that lead to itself.
    pub(super) beside: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeOutline {
    Box,
    Diamond,
}

/// An edge to route.
pub(super) struct LayoutEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) leads_back: bool,
    /// Width and height of the label.
    pub(super) label: Option<(f64, f64)>,
    /// The horizontal offset of its start from the node's centre, if fixed.
    pub(super) from_at: Option<f64>,
    /// The horizontal offset of its end from the node's centre, if fixed.
    pub(super) to_at: Option<f64>,
}

/// A finished layout. All coordinates are at least 0.
pub(super) struct GraphLayout {
    /// The nodes, in their order.
    pub(super) nodes: Vec<LayoutRect>,
    /// The edges, in their order; none for self-loops.
    pub(super) routes: Vec<Option<EdgeRoute>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A rectangle, by its centre.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LayoutRect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The route of an edge. Two points are joined by a vertical line, or else by a curve with vertical
/// ends.
#[derive(Clone)]
pub(super) struct EdgeRoute {
    pub(super) points: Vec<(f64, f64)>,
    pub(super) label: Option<LayoutRect>,
}

/// Something in a layer: a node, or the bend of an edge.
struct LayerItem {
    layer: usize,
    height: f64,
    extent: ItemExtent,
}

/// Lays out a graph. Each pair of `wishes` is a node and one to place below it if possible.
pub(super) fn lay_out(
    boxes: &[NodeBox],
    edges: &[LayoutEdge],
    wishes: &[(usize, usize)],
) -> GraphLayout {
    let downwards: Vec<(usize, usize)> = edges
        .iter()
        .filter(|edge| edge.from != edge.to)
        .map(|edge| if edge.leads_back { (edge.to, edge.from) } else { (edge.from, edge.to) })
        .collect();
    let ranks = ranks::ranks(boxes.len(), &downwards, wishes);
    let mut items: Vec<LayerItem> =
        boxes.iter().zip(&ranks).map(|(node_box, rank)| node_box.item(2 * rank)).collect();
    let chains: Vec<Vec<usize>> = edges.iter().map(|edge| chain(edge, &mut items)).collect();
    let layers = ordered(&items, &chains);
    let mut links = links(boxes, &layers, &items, &chains);
    keep_ends(edges, &chains, &mut links);
    let extents: Vec<ItemExtent> = items.iter().map(|item| item.extent).collect();
    let centres = place(&layers, &extents, &links);
    LayerSheet::new(&items, &layers, &links, &centres).drawn(boxes, edges, &chains, &links)
}

impl NodeBox {
    fn item(&self, layer: usize) -> LayerItem {
        let half = self.width / 2.0;
        let extent = ItemExtent { left: half, right: half + self.beside, apart: APART_NODES };
        LayerItem { layer, height: self.height + 2.0 * UPRIGHT, extent }
    }

    /// Half the height of the outline at a horizontal offset from the centre.
    pub(super) fn half_height_at(&self, offset: f64) -> f64 {
        let half = self.height / 2.0;
        match self.outline {
            NodeOutline::Box => half,
            NodeOutline::Diamond => half * (1.0 - offset.abs() / (self.width / 2.0)),
        }
    }

    /// The horizontal offset of one of several edges at its upper or lower side.
    fn end(&self, place: usize, count: usize) -> f64 {
        let usable = self.width
            * match self.outline {
                NodeOutline::Box => 0.7,
                NodeOutline::Diamond => 0.4,
            };
        let between = (usable / number(count)).min(BETWEEN_ENDS_MAX);
        between * (number(place) - number(count - 1) / 2.0)
    }
}

/// The items of an edge from top to bottom: a node, its bends, a node. Bends are added.
fn chain(edge: &LayoutEdge, items: &mut Vec<LayerItem>) -> Vec<usize> {
    if edge.from == edge.to {
        return Vec::new();
    }
    let (upper, lower) = if edge.leads_back { (edge.to, edge.from) } else { (edge.from, edge.to) };
    let between = items[upper].layer + 1..items[lower].layer;
    // A label is at the start of its edge, beside the labels of other edges.
    let labelled = if edge.leads_back { between.end - 1 } else { between.start };
    let mut chain = vec![upper];
    for layer in between {
        let (width, height) = edge.label.filter(|_| layer == labelled).unwrap_or((0.0, 0.0));
        let extent = ItemExtent { left: width / 2.0, right: width / 2.0, apart: APART_BENDS };
        chain.push(items.len());
        items.push(LayerItem { layer, height, extent });
    }
    chain.push(lower);
    chain
}

fn ordered(items: &[LayerItem], chains: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let count = items.iter().map(|item| item.layer + 1).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); count];
    for (number, item) in items.iter().enumerate() {
        layers[item.layer].push(number);
    }
    let mut neighbours = LayerNeighbours {
        above: vec![Vec::new(); items.len()],
        below: vec![Vec::new(); items.len()],
    };
    for pair in chains.iter().flat_map(|chain| chain.windows(2)) {
        neighbours.below[pair[0]].push(pair[1]);
        neighbours.above[pair[1]].push(pair[0]);
    }
    order(&mut layers, &neighbours);
    layers
}

/// The links of all edges, chain by chain. Their ends are spread along a node's side, in order.
fn links(
    boxes: &[NodeBox],
    layers: &[Vec<usize>],
    items: &[LayerItem],
    chains: &[Vec<usize>],
) -> Vec<LayerLink> {
    let mut links: Vec<LayerLink> = chains
        .iter()
        .flat_map(|chain| chain.windows(2))
        .map(|pair| {
            let (upper, lower) = (pair[0], pair[1]);
            let is_between_bends = upper >= boxes.len() && lower >= boxes.len();
            // A kink in a long edge is more visible than a node off centre.
            let weight = if is_between_bends { 16.0 } else { 1.0 };
            LayerLink { upper, lower, upper_offset: 0.0, lower_offset: 0.0, weight }
        })
        .collect();
    let mut place_of = vec![0; items.len()];
    for layer in layers {
        for (place, item) in layer.iter().enumerate() {
            place_of[*item] = place;
        }
    }
    let mut ends_below = vec![Vec::new(); boxes.len()];
    let mut ends_above = vec![Vec::new(); boxes.len()];
    for (number, link) in links.iter().enumerate() {
        if let Some(ends) = ends_below.get_mut(link.upper) {
            ends.push((place_of[link.lower], number));
        }
        if let Some(ends) = ends_above.get_mut(link.lower) {
            ends.push((place_of[link.upper], number));
        }
    }
    for (node_box, (mut below, mut above)) in
        boxes.iter().zip(ends_below.into_iter().zip(ends_above))
    {
        below.sort_unstable();
        above.sort_unstable();
        for (place, (_, link)) in below.iter().enumerate() {
            links[*link].upper_offset = node_box.end(place, below.len());
        }
        for (place, (_, link)) in above.iter().enumerate() {
            links[*link].lower_offset = node_box.end(place, above.len());
        }
    }
    links
}

/// Applies the fixed ends of edges.
fn keep_ends(edges: &[LayoutEdge], chains: &[Vec<usize>], links: &mut [LayerLink]) {
    let mut rest = links;
    for (edge, chain) in edges.iter().zip(chains) {
        let (own, after) = rest.split_at_mut(chain.len().saturating_sub(1));
        rest = after;
        let (upper, lower) =
            if edge.leads_back { (edge.to_at, edge.from_at) } else { (edge.from_at, edge.to_at) };
        if let (Some(first), Some(at)) = (own.first_mut(), upper) {
            first.upper_offset = at;
        }
        if let (Some(last), Some(at)) = (own.last_mut(), lower) {
            last.lower_offset = at;
        }
    }
}

/// The coordinates of items and layers.
struct LayerSheet<'a> {
    items: &'a [LayerItem],
    centres: Vec<f64>,
    /// The upper and the lower side of each layer.
    sides: Vec<(f64, f64)>,
    width: f64,
}

impl<'a> LayerSheet<'a> {
    fn new(
        items: &'a [LayerItem],
        layers: &[Vec<usize>],
        links: &[LayerLink],
        centres: &[f64],
    ) -> Self {
        let lefts = items.iter().zip(centres).map(|(item, middle)| middle - item.extent.left);
        let left = lefts.fold(f64::INFINITY, f64::min);
        // Whole numbers make short files and are the same on every machine.
        let centres: Vec<f64> = centres.iter().map(|middle| (middle - left).round()).collect();
        let rights = items.iter().zip(&centres).map(|(item, middle)| middle + item.extent.right);
        let width = rights.fold(0.0, f64::max).ceil();
        let mut sideways = vec![0.0_f64; layers.len()];
        for link in links {
            let begin = centres[link.upper] + link.upper_offset;
            let end = centres[link.lower] + link.lower_offset;
            let layer = items[link.upper].layer;
            sideways[layer] = sideways[layer].max((begin - end).abs());
        }
        let mut sides = Vec::with_capacity(layers.len());
        let mut top = 0.0;
        for (layer, sideways) in layers.iter().zip(sideways) {
            let height = layer.iter().map(|item| items[*item].height).fold(0.0, f64::max).ceil();
            sides.push((top, top + height));
            let space = (sideways * SPACE_PER_SIDEWAYS).clamp(SPACE_MIN, SPACE_MAX).round();
            top += height + space;
        }
        Self { items, centres, sides, width }
    }

    fn area(&self, item: usize, width: f64, height: f64) -> LayoutRect {
        let (top, bottom) = self.sides[self.items[item].layer];
        LayoutRect { x: self.centres[item], y: f64::midpoint(top, bottom).round(), width, height }
    }

    fn drawn(
        &self,
        boxes: &[NodeBox],
        edges: &[LayoutEdge],
        chains: &[Vec<usize>],
        links: &[LayerLink],
    ) -> GraphLayout {
        let nodes: Vec<LayoutRect> = boxes
            .iter()
            .enumerate()
            .map(|(number, node_box)| self.area(number, node_box.width, node_box.height))
            .collect();
        let mut links = links.iter();
        let mut routes = Vec::with_capacity(edges.len());
        for (edge, chain) in edges.iter().zip(chains) {
            let pieces: Vec<&LayerLink> =
                links.by_ref().take(chain.len().saturating_sub(1)).collect();
            let bends = chain.get(1..chain.len().saturating_sub(1)).unwrap_or_default();
            let label = edge.label.and_then(|(width, height)| {
                let bend = if edge.leads_back { bends.last() } else { bends.first() };
                bend.map(|bend| self.area(*bend, width, height))
            });
            let points = self.points(boxes, &nodes, &pieces, edge.leads_back);
            routes.push(points.map(|points| EdgeRoute { points, label }));
        }
        let height = self.sides.last().map_or(0.0, |(_, bottom)| *bottom);
        GraphLayout { nodes, routes, width: self.width, height }
    }

    /// The points of an edge, in the direction in which it leads.
    fn points(
        &self,
        boxes: &[NodeBox],
        nodes: &[LayoutRect],
        pieces: &[&LayerLink],
        leads_back: bool,
    ) -> Option<Vec<(f64, f64)>> {
        let (first, last) = (pieces.first()?, pieces.last()?);
        let begin = nodes[first.upper].y + boxes[first.upper].half_height_at(first.upper_offset);
        let end = nodes[last.lower].y - boxes[last.lower].half_height_at(last.lower_offset);
        let begin_x = (self.centres[first.upper] + first.upper_offset).round();
        let mut points = vec![(begin_x, begin.round())];
        for piece in pieces {
            let x = (self.centres[piece.upper] + piece.upper_offset).round();
            points.push((x, self.sides[self.items[piece.upper].layer].1));
            let x = (self.centres[piece.lower] + piece.lower_offset).round();
            points.push((x, self.sides[self.items[piece.lower].layer].0));
        }
        let end_x = (self.centres[last.lower] + last.lower_offset).round();
        points.push((end_x, end.round()));
        // A layer without height is empty, so a curve may pass through it.
        let is_between = |index: usize| (2..points.len() - 2).contains(&index);
        let is_flat =
            |y: f64| self.sides.iter().any(|(top, bottom)| (y - top).abs() + (bottom - top) < 0.5);
        let mut points: Vec<(f64, f64)> = points
            .iter()
            .enumerate()
            .filter(|(index, (_, y))| !(is_between(*index) && is_flat(*y)))
            .map(|(_, point)| *point)
            .collect();
        points.dedup();
        if leads_back {
            points.reverse();
        }
        Some(points)
    }
}
