//! Back edges and ranks: the layer of each node.

/// Marks the back edges of a depth-first search from the entry, then from unreached nodes. Without
/// them the graph has no cycle.
pub(in super::super) fn find_back_edges(
    node_count: usize,
    entry: usize,
    edges: &[(usize, usize)],
) -> Vec<bool> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        No,
        OnTheWay,
        Done,
    }
    let mut out = vec![Vec::new(); node_count];
    for (number, (from, _)) in edges.iter().enumerate() {
        out[*from].push(number);
    }
    let mut back = vec![false; edges.len()];
    let mut seen = vec![VisitState::No; node_count];
    for start in std::iter::once(entry).chain(0..node_count) {
        if seen[start] != VisitState::No {
            continue;
        }
        // An explicit stack, so that a long chain cannot overflow the call stack.
        let mut walk = vec![(start, 0)];
        seen[start] = VisitState::OnTheWay;
        while let Some((node, next)) = walk.last_mut() {
            let Some(&edge) = out[*node].get(*next) else {
                seen[*node] = VisitState::Done;
                walk.pop();
                continue;
            };
            *next += 1;
            let to = edges[edge].1;
            match seen[to] {
                VisitState::No => {
                    seen[to] = VisitState::OnTheWay;
                    walk.push((to, 0));
                }
                VisitState::OnTheWay => back[edge] = true,
                VisitState::Done => {}
            }
        }
    }
    back
}

/// The rank of each node: the length of the longest path to it. The edges must be acyclic. A wish
/// is granted unless it closes a cycle.
pub(super) fn ranks(
    node_count: usize,
    edges: &[(usize, usize)],
    wishes: &[(usize, usize)],
) -> Vec<usize> {
    let mut below = vec![Vec::new(); node_count];
    for &(upper, lower) in edges {
        below[upper].push(lower);
    }
    for &(upper, lower) in wishes {
        if !polity_definition::graph::reachable(&below, lower)[upper] {
            below[upper].push(lower);
        }
    }
    let mut waits_for = vec![0_usize; node_count];
    for &lower in below.iter().flatten() {
        waits_for[lower] += 1;
    }
    let mut ready: Vec<usize> = (0..node_count).filter(|node| waits_for[*node] == 0).collect();
    let mut ranks = vec![0; node_count];
    while let Some(node) = ready.pop() {
        for &lower in &below[node] {
            ranks[lower] = ranks[lower].max(ranks[node] + 1);
            waits_for[lower] -= 1;
            if waits_for[lower] == 0 {
                ready.push(lower);
            }
        }
    }
    ranks
}
