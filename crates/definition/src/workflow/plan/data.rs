//! Data dependencies between nodes.
//!
//! A node that reads another's output comes after it, even without an edge. If the edges already
//! order the two, they decide.

use std::collections::BTreeMap;

use super::{LinkKind, PlanLink, PlanTarget, WorkflowPlan};
use crate::graph;

/// An error in the data flow between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum DataFlowError {
    /// Nodes wait for each other's outputs.
    Circle(Vec<usize>),
    /// Two nodes that may run at once write the same.
    SameOutput {
        /// The output.
        output: String,
        /// The first of them.
        one: usize,
        /// The other.
        other: usize,
    },
}

impl WorkflowPlan {
    /// Adds the links of data dependencies.
    pub(super) fn add_data_links(&mut self) -> Vec<DataFlowError> {
        let mut writers: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for output in &node.node.outputs {
                writers.entry(output.name.as_str().to_owned()).or_default().push(index);
            }
        }
        // Most workflows declare nothing, and every task passes here.
        if writers.is_empty() {
            return Vec::new();
        }
        let forward = self.reaches(|link| !link.is_back);
        let all = self.reaches(|_| true);
        let mut found = Vec::new();
        let mut faults = Vec::new();
        for (reader, node) in self.nodes.iter().enumerate() {
            for input in &node.node.inputs {
                let Some(writers) = writers.get(input.as_str()) else { continue };
                // A node that reads its own output reads the previous value.
                let writers = || writers.iter().copied().filter(|writer| *writer != reader);
                if writers().any(|writer| forward[writer][reader]) {
                    continue;
                }
                let mut before = writers().filter(|writer| !forward[reader][*writer]).peekable();
                if before.peek().is_some() {
                    found.extend(before.map(|from| PlanLink {
                        from,
                        to: reader,
                        kind: LinkKind::Data,
                        edge: None,
                        is_back: false,
                    }));
                } else if let Some(writer) = writers().next()
                    && !writers().any(|writer| all[writer][reader])
                {
                    faults.push(DataFlowError::Circle(vec![reader, writer]));
                }
            }
        }
        found.sort_by_key(|link| (link.from, link.to));
        found.dedup();
        self.links.extend(found);
        faults.extend(
            graph::cycles(&self.successors(|link| !link.is_back))
                .into_iter()
                .map(DataFlowError::Circle),
        );
        faults.extend(self.same_outputs(&writers));
        faults
    }

    /// The reachability matrix of the selected links.
    fn reaches(&self, which: impl Fn(&PlanLink) -> bool) -> Vec<Vec<bool>> {
        let successors = self.successors(which);
        (0..self.nodes.len())
            .map(|node| {
                let mut reached = vec![false; self.nodes.len()];
                for next in &successors[node] {
                    let beyond = graph::reachable(&successors, *next);
                    reached.iter_mut().zip(beyond).for_each(|(all, one)| *all |= one);
                }
                reached
            })
            .collect()
    }

    /// Pairs that write the same and that nothing keeps from running at once.
    fn same_outputs(&self, writers: &BTreeMap<String, Vec<usize>>) -> Vec<DataFlowError> {
        let reaches = self.reaches(|link| !link.is_back);
        let mut faults = Vec::new();
        for (output, writers) in writers {
            for (place, &one) in writers.iter().enumerate() {
                for &other in &writers[place + 1..] {
                    let is_ordered = reaches[one][other] || reaches[other][one];
                    if !is_ordered && !self.exclude_each_other(&reaches, one, other) {
                        faults.push(DataFlowError::SameOutput {
                            output: output.clone(),
                            one,
                            other,
                        });
                    }
                }
            }
        }
        faults
    }

    /// True if two nodes are behind different targets of one mapping, of which only one is taken,
    /// or if one is behind the error edges of a node and the other behind its other edges.
    fn exclude_each_other(&self, reaches: &[Vec<bool>], one: usize, other: usize) -> bool {
        let behind = |to: usize, node: usize| to == node || reaches[to][node];
        let differ = |targets: &[usize]| {
            let only = |node, not| {
                targets.iter().any(|to| behind(*to, node))
                    && !targets.iter().any(|to| behind(*to, node) && behind(*to, not))
            };
            only(one, other) && only(other, one)
        };
        let by_key = self.edges.iter().any(|edge| {
            let PlanTarget::ByRoutingKey { links, default } = &edge.target else { return false };
            let targets: Vec<usize> =
                links.values().chain(default).map(|link| self.links[*link].to).collect();
            differ(&targets)
        });
        by_key || self.nodes.iter().enumerate().any(|(from, _)| self.error_excludes(from, differ))
    }

    /// True if a pair of an error target and another target of a node makes a difference.
    fn error_excludes(&self, from: usize, differ: impl Fn(&[usize]) -> bool) -> bool {
        let of = |is_error: bool| {
            self.links
                .iter()
                .filter(move |link| link.from == from && (link.kind == LinkKind::Error) == is_error)
        };
        of(true).any(|error| of(false).any(|other| differ(&[error.to, other.to])))
    }
}
