//! Algorithms on directed graphs, whose nodes are numbers.

/// Finds cycles by depth-first search: one for each edge back to a node on the stack. Each cycle
/// starts with the node it returns to.
pub(crate) fn cycles(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitMark {
        New,
        Walking,
        Done,
    }
    let mut marks = vec![VisitMark::New; successors.len()];
    let mut found = Vec::new();
    for start in 0..successors.len() {
        if marks[start] != VisitMark::New {
            continue;
        }
        // An explicit stack, so that a long chain cannot overflow the call stack.
        let mut walk: Vec<(usize, usize)> = vec![(start, 0)];
        marks[start] = VisitMark::Walking;
        while let Some((node, next)) = walk.last_mut() {
            let Some(&successor) = successors[*node].get(*next) else {
                marks[*node] = VisitMark::Done;
                walk.pop();
                continue;
            };
            *next += 1;
            match marks[successor] {
                VisitMark::New => {
                    marks[successor] = VisitMark::Walking;
                    walk.push((successor, 0));
                }
                VisitMark::Walking => {
                    let on_cycle = walk.iter().map(|(node, _)| *node);
                    found.push(on_cycle.skip_while(|node| *node != successor).collect());
                }
                VisitMark::Done => {}
            }
        }
    }
    found
}

/// Marks the nodes that can be reached from `start`, itself included.
pub fn reachable(successors: &[Vec<usize>], start: usize) -> Vec<bool> {
    let mut reached = vec![false; successors.len()];
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            waiting.extend(&successors[node]);
        }
    }
    reached
}

/// A cycle in words: `a -> b -> a`.
pub(crate) fn cycle_in_words<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.extend(names.first().copied());
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_one_cycle_per_back_edge() {
        for (successors, expected) in [
            (vec![vec![1], vec![2], vec![]], vec![]),
            (vec![vec![0]], vec![vec![0]]),
            (vec![vec![1], vec![2], vec![1]], vec![vec![1, 2]]),
            (vec![vec![1, 2], vec![3], vec![3], vec![]], vec![]),
            (vec![vec![1], vec![0, 2], vec![0]], vec![vec![0, 1], vec![0, 1, 2]]),
        ] {
            assert_eq!(cycles(&successors), expected, "{successors:?}");
        }
        let chain: Vec<Vec<usize>> =
            (1..=100_000).map(|next| if next < 100_000 { vec![next] } else { vec![] }).collect();
        assert_eq!(cycles(&chain), Vec::<Vec<usize>>::new());
        assert!(reachable(&chain, 0).iter().all(|reached| *reached));
    }

    #[test]
    fn cycle_in_words_repeats_the_first_node() {
        assert_eq!(cycle_in_words(["a", "b"]), "a -> b -> a");
    }
}
