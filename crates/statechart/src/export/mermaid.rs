//! A chart as a Mermaid state diagram.

use std::fmt::Write;

use crate::chart::Chart;

impl Chart {
    /// The chart as a Mermaid state diagram, which many web pages and editors show as a picture.
    pub fn to_mermaid(&self) -> String {
        let mut text = format!("---\ntitle: Chart {}\n---\nstateDiagram-v2\n", self.name);
        let initial = usize::from(self.states[self.initial.index()]);
        self.states_inside(None, initial, 1, &mut text);
        for arrow in self.arrows() {
            let to = &self.tree[arrow.to].name;
            for from in self.drawn_from(arrow.from, arrow.to) {
                let from = &self.tree[from].name;
                for label in &arrow.labels {
                    // Writing to a String cannot fail.
                    let _ = writeln!(text, "    {from} --> {to} : {}", escaped(label));
                }
            }
        }
        text
    }

    fn states_inside(
        &self,
        parent: Option<usize>,
        initial: usize,
        depth: usize,
        text: &mut String,
    ) {
        let indent = "    ".repeat(depth);
        let entered = match parent {
            Some(parent) => self.tree[parent].initial,
            None => self.outermost(initial),
        };
        if let Some(entered) = entered {
            let _ = writeln!(text, "{indent}[*] --> {}", self.tree[entered].name);
        }
        for (number, node) in self.tree.iter().enumerate().filter(|(_, node)| node.parent == parent)
        {
            if node.children.is_empty() {
                let _ = writeln!(text, "{indent}{}", node.name);
            } else {
                let _ = writeln!(text, "{indent}state {} {{", node.name);
                self.states_inside(Some(number), initial, depth + 1, text);
                let _ = writeln!(text, "{indent}}}");
                if node.history {
                    let _ = writeln!(text, "{indent}note right of {} : history", node.name);
                }
            }
        }
    }

    /// Mermaid draws no arrow from a state to one inside it, so the others inside begin it.
    fn drawn_from(&self, from: usize, to: usize) -> Vec<usize> {
        let is_inside = |state: usize, outer: usize| {
            let mut around = std::iter::successors(Some(state), |state| self.tree[*state].parent);
            around.any(|around| around == outer)
        };
        if from == to || !is_inside(to, from) {
            return vec![from];
        }
        let leaves = self.states.iter().map(|leaf| usize::from(*leaf));
        leaves.filter(|leaf| is_inside(*leaf, from) && !is_inside(*leaf, to)).collect()
    }

    /// The state around a state that nothing is around.
    fn outermost(&self, state: usize) -> Option<usize> {
        std::iter::successors(Some(state), |state| self.tree[*state].parent).last()
    }
}

/// Characters that mean something to Mermaid, written as its entities.
fn escaped(label: &str) -> String {
    let mut text = String::new();
    for letter in label.chars() {
        match letter {
            '#' => text.push_str("#35;"),
            ';' => text.push_str("#59;"),
            ':' => text.push_str("#58;"),
            '<' => text.push_str("#lt;"),
            '>' => text.push_str("#gt;"),
            '"' => text.push_str("#quot;"),
            '\n' | '\r' => text.push(' '),
            other => text.push(other),
        }
    }
    text
}
