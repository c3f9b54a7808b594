//! How far to the right everything stands, so that lines are as straight as can be.

/// How often the layers are gone through until they have settled.
const SWEEPS: usize = 64;

/// How much room an item takes to either side of its line.
#[derive(Clone, Copy)]
pub(super) struct ItemExtent {
    pub(super) left: f64,
    pub(super) right: f64,
    /// The least distance to what stands beside it.
    pub(super) apart: f64,
}

/// A piece of a line between two layers. It would like to be upright.
pub(super) struct LayerLink {
    pub(super) upper: usize,
    pub(super) lower: usize,
    /// How far right of its upper item's middle it begins.
    pub(super) upper_offset: f64,
    /// How far right of its lower item's middle it ends.
    pub(super) lower_offset: f64,
    /// How much it matters that it is upright.
    pub(super) weight: f64,
}

/// The middle of each item. Those of a layer keep their order and their distance.
pub(super) fn place(
    layers: &[Vec<usize>],
    extents: &[ItemExtent],
    links: &[LayerLink],
) -> Vec<f64> {
    // Of each item: where it would stand if one of its links were upright, and how much that
    // matters.
    let mut from_above = vec![Vec::new(); extents.len()];
    let mut from_below = vec![Vec::new(); extents.len()];
    for link in links {
        let shift = link.upper_offset - link.lower_offset;
        from_above[link.lower].push((link.upper, shift, link.weight));
        from_below[link.upper].push((link.lower, -shift, link.weight));
    }
    let mut middles = vec![0.0; extents.len()];
    for layer in layers {
        settle(layer, extents, &mut middles, |_, _| None);
    }
    for sweep in 0..=SWEEPS {
        let wish = |item: usize, middles: &[f64]| {
            // The last sweep looks to both sides, and mends what the one before pulled askew.
            let above = if sweep % 2 == 0 { from_above[item].as_slice() } else { &[] };
            let looks_down = sweep % 2 == 1 || sweep == SWEEPS;
            let below = if looks_down { from_below[item].as_slice() } else { &[] };
            let near = || above.iter().chain(below);
            let weight: f64 = near().map(|(_, _, weight)| weight).sum();
            let sum: f64 =
                near().map(|(other, shift, weight)| (middles[*other] + shift) * weight).sum();
            (weight > 0.0).then(|| (sum / weight, weight))
        };
        for step in 0..layers.len() {
            let layer = if sweep % 2 == 0 { step } else { layers.len() - 1 - step };
            settle(&layers[layer], extents, &mut middles, wish);
        }
    }
    middles
}

/// Items that push against each other and therefore move together.
struct ItemBlock {
    /// Where the first of them would like to stand, on average.
    start: f64,
    weight: f64,
    /// How many there are.
    count: usize,
}

/// Moves the items of a layer as near to where they wish to stand as their distances allow: those
/// that would come too close become a block, which stands where they wish on average.
fn settle(
    layer: &[usize],
    extents: &[ItemExtent],
    middles: &mut [f64],
    wish: impl Fn(usize, &[f64]) -> Option<(f64, f64)>,
) {
    // Distances are taken out, so that items may not stand left of those before them, and that is
    // all there is to keep.
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
        // What is joined to nothing on that side gives way, but not without need.
        let (wished, weight) = wish(item, middles).unwrap_or((middles[item], 0.01));
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
        middles[item] = start + distance;
    }
}
