//! The topological order of a workflow's nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::WorkflowPlan;

impl WorkflowPlan {
    /// Sets the links and rank of every node: topological order, ties by file order.
    pub(super) fn sort(&mut self) {
        for (index, link) in self.links.iter().enumerate() {
            self.nodes[link.from].links_out.push(index);
            if !link.is_back {
                self.nodes[link.to].links_in.push(index);
            }
        }
        let successors = self.successors(|link| !link.is_back);
        let mut before = vec![0_usize; self.nodes.len()];
        for successor in successors.iter().flatten() {
            before[*successor] += 1;
        }
        let free = (0..before.len()).filter(|node| before[*node] == 0);
        let mut waiting: BinaryHeap<Reverse<usize>> = free.map(Reverse).collect();
        let mut rank = 0;
        while let Some(Reverse(node)) = waiting.pop() {
            self.nodes[node].rank = rank;
            rank += 1;
            for successor in &successors[node] {
                before[*successor] -= 1;
                if before[*successor] == 0 {
                    waiting.push(Reverse(*successor));
                }
            }
        }
    }
}
