//! Horizontal coordinates, with links as vertical as possible.

/// The number of sweeps until the coordinates settle.
const SWEEPS: usize = 64;

/// The horizontal extent of an item.
#[derive(Clone, Copy)]
pub(super) struct ItemExtent {
    pub(super) left: f64,
    pub(super) right: f64,
    /// The least distance to adjacent items.
    pub(super) apart: f64,
}

/// A link between two layers, vertical if possible.
pub(super) struct LayerLink {
    pub(super) upper: usize,
    pub(super) lower: usize,
    /// The horizontal offset at its upper item.
    pub(super) upper_offset: f64,
    /// The horizontal offset at its lower item.
    pub(super) lower_offset: f64,
    /// The weight of keeping it vertical.
    pub(super) weight: f64,
}

/// The horizontal centre of each item. Items of a layer keep their order and distance.
pub(super) fn place(
    layers: &[Vec<usize>],
    extents: &[ItemExtent],
    links: &[LayerLink],
) -> Vec<f64> {
    // The neighbours of each item: index, shift of a vertical link, weight.
    let mut from_above = vec![Vec::new(); extents.len()];
    let mut from_below = vec![Vec::new(); extents.len()];
    for link in links {
        let shift = link.upper_offset - link.lower_offset;
        from_above[link.lower].push((link.upper, shift, link.weight));
        from_below[link.upper].push((link.lower, -shift, link.weight));
    }
    let mut centres = vec![0.0; extents.len()];
    for layer in layers {
        settle(layer, extents, &mut centres, |_, _| None);
    }
    for sweep in 0..=SWEEPS {
        let wish = |item: usize, centres: &[f64]| {
            // The last sweep uses both sides, which corrects the bias of the one before.
            let above = if sweep % 2 == 0 { from_above[item].as_slice() } else { &[] };
            let looks_down = sweep % 2 == 1 || sweep == SWEEPS;
            let below = if looks_down { from_below[item].as_slice() } else { &[] };
            let near = || above.iter().chain(below);
            let weight: f64 = near().map(|(_, _, weight)| weight).sum();
            let sum: f64 =
                near().map(|(other, shift, weight)| (centres[*other] + shift) * weight).sum();
            (weight > 0.0).then(|| (sum / weight, weight))
        };
        for step in 0..layers.len() {
            let layer = if sweep % 2 == 0 { step } else { layers.len() - 1 - step };
            settle(&layers[layer], extents, &mut centres, wish);
        }
    }
    centres
}

/// Adjacent items that move together.
struct ItemBlock {
    /// The preferred position of the first item, on average.
    start: f64,
    weight: f64,
    /// The number of items.
    count: usize,
}

/// Moves the items of a layer as close to their preferred positions as their distances allow: items
/// that would overlap become a block at their average position.
fn settle(
    layer: &[usize],
    extents: &[ItemExtent],
    centres: &mut [f64],
    wish: impl Fn(usize, &[f64]) -> Option<(f64, f64)>,
) {
    // Distances are subtracted, so that the only constraint left is the order of the items.
    let mut distances = Vec::with_capacity(layer.len());
    let mut distance = 0.0;
    let mut before: Option<ItemExtent> = None;
    let mut blocks: Vec<ItemBlock> = Vec::new();
    for &item in layer {
        let extent = extents[item];
        if let Some(before) = before {
            distance += before.right + before.apart.max(extent.apart) + extent.left;
        }
        before = Some(extent);
        distances.push(distance);
        // An item without links on that side has a small weight.
        let (wished, weight) = wish(item, centres).unwrap_or((centres[item], 0.01));
        let mut block = ItemBlock { start: wished - distance, weight, count: 1 };
        while let Some(left) = blocks.pop_if(|left| left.start > block.start) {
            let weight = left.weight + block.weight;
            let start = (left.start * left.weight + block.start * block.weight) / weight;
            block = ItemBlock { start, weight, count: left.count + block.count };
        }
        blocks.push(block);
    }
    let starts = blocks.iter().flat_map(|block| std::iter::repeat_n(block.start, block.count));
    for ((&item, distance), start) in layer.iter().zip(distances).zip(starts) {
        centres[item] = start + distance;
    }
}
