//! Charts in the formats of others, and as arrows for those who draw them.

mod scxml;

use std::fmt::Write;

use crate::chart::{Chart, Transition};

/// An arrow of a picture, with a label for each transition that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrow {
    /// Where it begins, by the place in the tree of states.
    pub from: usize,
    /// Where it ends, by the place in the tree of states.
    pub to: usize,
    /// What is written on it, line by line.
    pub labels: Vec<String>,
}

impl Chart {
    /// All transitions as arrows. Those with the same ends share one.
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

    /// Trigger, guard and actions of a transition on one line, as statecharts are labelled.
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
