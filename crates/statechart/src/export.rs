//! Exports of charts.

mod scxml;

use std::fmt::Write;

use crate::chart::{Chart, Transition};

/// An edge of a diagram, with one label per transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    /// The index of the source state in the tree.
    pub from: usize,
    /// The index of the target state in the tree.
    pub to: usize,
    /// The labels.
    pub labels: Vec<String>,
}

impl Chart {
    /// Returns all transitions as arrows. Transitions with the same ends share one.
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut arrows: Vec<Arrow> = Vec::new();
        for transition in &self.transitions {
            let label = self.label(transition);
            for from in &transition.sources {
                let (from, to) = (*from, transition.target);
                let known = arrows.iter_mut().find(|arrow| arrow.from == from && arrow.to == to);
                match known {
                    Some(arrow) => arrow.labels.push(label.clone()),
                    None => arrows.push(Arrow { from, to, labels: vec![label.clone()] }),
                }
            }
        }
        arrows
    }

    /// Returns the trigger, guard and actions of a transition on one line, in statechart notation.
    fn label(&self, transition: &Transition) -> String {
        let mut label = self.trigger_name(transition.trigger).to_owned();
        if let Some(threshold) = &transition.threshold {
            // Writing to a String cannot fail.
            let _ = write!(label, " after {threshold} ticks");
        }
        if transition.oracle {
            label.push_str(" (oracle)");
        }
        if let Some(guard) = &transition.guard {
            let _ = write!(label, " [{guard}]");
        }
        if !transition.actions.is_empty() {
            let _ = write!(label, " / {}", transition.actions.join(", "));
        }
        label
    }
}
