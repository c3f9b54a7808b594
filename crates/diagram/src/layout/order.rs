//! The order within layers, with few crossings.

use super::super::text::number;

/// The number of sweeps; more hardly ever help.
const SWEEPS: usize = 16;

/// The neighbours of each item in adjacent layers.
pub(super) struct LayerNeighbours {
    pub(super) above: Vec<Vec<usize>>,
    pub(super) below: Vec<Vec<usize>>,
}

/// Orders every layer by the barycentres of neighbours, sweeping down and up, and keeps the best
/// order.
pub(super) fn order(layers: &mut Vec<Vec<usize>>, neighbours: &LayerNeighbours) {
    let mut best = layers.clone();
    let mut crossings_min = usize::MAX;
    for sweep in 0..SWEEPS {
        let goes_down = sweep % 2 == 0;
        let to_middle = if goes_down { &neighbours.above } else { &neighbours.below };
        let count = layers.len();
        for step in 1..count {
            let layer = if goes_down { step } else { count - 1 - step };
            let beside = if goes_down { layer - 1 } else { layer + 1 };
            let places = places(&layers[beside], to_middle.len());
            sort_by_middle(&mut layers[layer], to_middle, &places);
        }
        swap_pairs(layers, neighbours);
        let crossings = all_crossings(layers, neighbours);
        if crossings < crossings_min {
            crossings_min = crossings;
            best.clone_from(layers);
        }
        if crossings == 0 {
            break;
        }
    }
    *layers = best;
}

/// The index of each item within its layer; 0 for items of other layers.
fn places(layer: &[usize], item_count: usize) -> Vec<usize> {
    let mut places = vec![0; item_count];
    for (place, item) in layer.iter().enumerate() {
        places[*item] = place;
    }
    places
}

fn sort_by_middle(layer: &mut Vec<usize>, neighbours: &[Vec<usize>], places: &[usize]) {
    let mut keyed: Vec<(f64, usize)> = layer
        .iter()
        .enumerate()
        .map(|(place, &item)| {
            let near = &neighbours[item];
            if near.is_empty() {
                return (number(place), item);
            }
            let sum: f64 = near.iter().map(|other| number(places[*other])).sum();
            (sum / number(near.len()), item)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    *layer = keyed.into_iter().map(|(_, item)| item).collect();
}

/// Swaps adjacent items if that removes crossings.
fn swap_pairs(layers: &mut [Vec<usize>], neighbours: &LayerNeighbours) {
    for layer in 0..layers.len() {
        let item_count = neighbours.above.len();
        let none = Vec::new();
        let above = layer.checked_sub(1).map_or(&none, |above| &layers[above]);
        let above = places(above, item_count);
        let below = places(layers.get(layer + 1).unwrap_or(&none), item_count);
        let crossed = |left: usize, right: usize| {
            pair_crossings(&neighbours.above[left], &neighbours.above[right], &above)
                + pair_crossings(&neighbours.below[left], &neighbours.below[right], &below)
        };
        for place in 1..layers[layer].len() {
            let (left, right) = (layers[layer][place - 1], layers[layer][place]);
            if crossed(right, left) < crossed(left, right) {
                layers[layer].swap(place - 1, place);
            }
        }
    }
}

/// The number of crossings between two items' links, in this order.
fn pair_crossings(left: &[usize], right: &[usize], places: &[usize]) -> usize {
    let crosses =
        |other: &usize| left.iter().filter(|near| places[**near] > places[*other]).count();
    right.iter().map(crosses).sum()
}

fn all_crossings(layers: &[Vec<usize>], neighbours: &LayerNeighbours) -> usize {
    let mut crossings = 0;
    for pair in layers.windows(2) {
        let places = places(&pair[1], neighbours.below.len());
        // Links cross if a later one ends left of an earlier one. A Fenwick tree counts the ends, so
        // that large workflows stay fast.
        let mut ended = vec![0_usize; pair[1].len() + 1];
        let mut total = 0;
        for item in &pair[0] {
            let mut ends: Vec<usize> =
                neighbours.below[*item].iter().map(|end| places[*end]).collect();
            ends.sort_unstable();
            for end in &ends {
                crossings += total - sum_through(&ended, *end);
            }
            for end in ends {
                add_at(&mut ended, end);
                total += 1;
            }
        }
    }
    crossings
}

fn add_at(tree: &mut [usize], place: usize) {
    let mut index = place + 1;
    while index < tree.len() {
        tree[index] += 1;
        index += index & index.wrapping_neg();
    }
}

fn sum_through(tree: &[usize], place: usize) -> usize {
    let mut index = place + 1;
    let mut sum = 0;
    while index > 0 {
        sum += tree[index];
        index &= index - 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_removes_crossings() {
        let below = vec![vec![4, 5], vec![3], vec![3], vec![], vec![], vec![]];
        let above = vec![vec![], vec![], vec![], vec![1, 2], vec![0], vec![0]];
        let neighbours = LayerNeighbours { above, below };
        let mut layers = vec![vec![0, 1, 2], vec![3, 4, 5]];
        assert_eq!(all_crossings(&layers, &neighbours), 4);
        order(&mut layers, &neighbours);
        assert_eq!(all_crossings(&layers, &neighbours), 0);
    }
}
