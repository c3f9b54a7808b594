//! The SCXML form of a chart, a W3C format for statecharts.
//!
//! Guards and action values are valid ECMAScript; a script defines `draw` and `chance`. A timeout
//! is the event `timeout`: the SCXML runtime must count ticks. Agent requests are events with the
//! prefix `request.`.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use crate::chart::{Chart, Transition};
use crate::ids::{StateId, TriggerId};
use crate::value::ScalarValue;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const SCRIPT: &str = "  <script>function draw() { return Math.random(); } \
    function chance(p) { return draw() &lt; p; }</script>\n";

impl Chart {
    /// Returns the chart as SCXML.
    pub fn to_scxml(&self) -> String {
        let mut text = String::from(HEAD);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "<scxml xmlns=\"http://www.w3.org/2005/07/scxml\" version=\"1.0\" \
             datamodel=\"ecmascript\" name=\"{}\" initial=\"{}\">",
            self.name,
            self.state_name(self.initial)
        );
        self.scxml_data(&mut text);
        text.push_str(SCRIPT);
        let by_state: Vec<Vec<&Transition>> =
            (0..self.tree.len()).map(|number| self.scxml_order(number)).collect();
        for (number, node) in self.tree.iter().enumerate() {
            if node.parent.is_none() {
                self.scxml_state(number, 1, &by_state, &mut text);
            }
        }
        text.push_str("</scxml>\n");
        text
    }

    fn scxml_data(&self, text: &mut String) {
        let object = |values: Vec<(&String, &Option<ScalarValue>)>| {
            let values = values
                .into_iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref()?.to_json())));
            Json::Object(values.collect::<Map<_, _>>()).to_string()
        };
        let agent = self.fields.iter().map(|field| (&field.name, &field.default)).collect();
        let world = self.world_values.iter().map(|world| (&world.name, &world.default)).collect();
        text.push_str("  <datamodel>\n");
        for (id, value) in
            [("agent", object(agent)), ("world", object(world)), ("context", object(Vec::new()))]
        {
            let _ = writeln!(text, "    <data id=\"{id}\" expr=\"{}\"/>", escaped(&value));
        }
        text.push_str("  </datamodel>\n");
    }

    /// Writes a state. `by_state` lists the transitions of each state.
    fn scxml_state(
        &self,
        number: usize,
        depth: usize,
        by_state: &[Vec<&Transition>],
        text: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        let node = &self.tree[number];
        // A state with a history is always entered at its last active child.
        let initial = node.initial.map(|initial| {
            if node.history { self.history_id(number) } else { self.tree[initial].name.clone() }
        });
        let initial = initial.map_or(String::new(), |name| format!(" initial=\"{name}\""));
        let _ = writeln!(text, "{indent}<state id=\"{}\"{initial}>", node.name);
        for (element, actions) in [("onentry", &node.entry), ("onexit", &node.exit)] {
            if !actions.is_empty() {
                let _ = writeln!(text, "{indent}  <{element}>");
                scxml_actions(actions, depth + 2, text);
                let _ = writeln!(text, "{indent}  </{element}>");
            }
        }
        if node.history
            && let Some(initial) = node.initial
        {
            let (history, first) = (self.history_id(number), &self.tree[initial].name);
            let _ = writeln!(
                text,
                "{indent}  <history id=\"{history}\" type=\"shallow\"><transition \
                 target=\"{first}\"/></history>"
            );
        }
        let overridden = self.overridden_triggers(number, by_state);
        let is_overridden =
            |one: &&Transition| overridden.iter().any(|(trigger, _)| *trigger == one.trigger);
        for transition in by_state[number].iter().copied().filter(|one| !is_overridden(one)) {
            self.scxml_transition(number, transition, depth + 1, text);
        }
        for (trigger, candidates) in &overridden {
            for transition in candidates {
                self.scxml_transition(number, transition, depth + 1, text);
            }
            if candidates.last().is_none_or(|last| last.guard.is_some()) {
                // An empty transition hides those of the ancestors.
                let event = self.trigger_name(*trigger);
                let _ = writeln!(text, "{indent}  <transition event=\"{event}\"/>");
            }
        }
        for child in &node.children {
            self.scxml_state(*child, depth + 1, by_state, text);
        }
        let _ = writeln!(text, "{indent}</state>");
    }

    /// Returns the transitions of a state. Other runtimes have no oracle, so its default choice
    /// comes first.
    fn scxml_order(&self, number: usize) -> Vec<&Transition> {
        // A transition from `*` belongs to the outermost states, in file order.
        let is_here = |one: &&Transition| {
            if one.from_any {
                self.tree[number].parent.is_none()
                    && one.sources.iter().any(|source| self.is_inside(*source, number))
            } else {
                one.sources.contains(&number)
            }
        };
        self.scxml_default_first(self.transitions.iter().filter(is_here).collect())
    }

    fn scxml_default_first<'c>(&self, mut ordered: Vec<&'c Transition>) -> Vec<&'c Transition> {
        for late in 0..ordered.len() {
            let Transition { trigger, target, oracle, .. } = ordered[late];
            if !oracle || self.initial_leaf(*target) != self.oracle_default {
                continue;
            }
            let rival = |one: &&Transition| one.oracle && one.trigger == *trigger;
            if let Some(first) = ordered[..late].iter().position(rival) {
                ordered[first..=late].rotate_right(1);
            }
        }
        ordered
    }

    /// Returns an id for a state's history that no state has.
    fn history_id(&self, node: usize) -> String {
        let mut id = format!("{}_history", self.tree[node].name);
        while self.tree.iter().any(|node| node.name == id) {
            id.push('_');
        }
        id
    }

    fn initial_leaf(&self, mut node: usize) -> Option<StateId> {
        while let Some(initial) = self.tree[node].initial {
            node = initial;
        }
        self.tree[node].state
    }

    /// Returns the triggers of a leaf state whose transitions differ from those that SCXML would
    /// derive from its ancestors. Here a transition leaves no common ancestor of its ends, and `*`
    /// excludes the target.
    fn overridden_triggers(
        &self,
        leaf: usize,
        all: &[Vec<&Transition>],
    ) -> Vec<(TriggerId, Vec<&Transition>)> {
        let Some(state) = self.tree[leaf].state else { return Vec::new() };
        let is_final = |one: &&Transition| one.guard.is_none() && !one.oracle;
        let mut overridden = Vec::new();
        for (number, _) in self.triggers.iter().enumerate() {
            let Some(trigger) = u8::try_from(number).ok().map(TriggerId) else { continue };
            let rows = self
                .candidate_range(state, trigger)
                .map(|row| usize::from(self.candidates[row].transition));
            let candidates: Vec<&Transition> = rows.map(|row| &self.transitions[row]).collect();
            let mut by_state: Vec<&Transition> = Vec::new();
            let mut is_same = true;
            let mut inner = leaf;
            for node in self.ancestors(leaf) {
                for one in all[node].iter().copied().filter(|one| one.trigger == trigger) {
                    is_same &=
                        node == leaf || !self.is_inside(self.resolve_entry(one.target), inner);
                    by_state.push(one);
                }
                inner = node;
                if by_state.iter().any(is_final) {
                    break;
                }
            }
            let candidates = self.scxml_default_first(candidates);
            is_same &= by_state
                .iter()
                .map(|one| &one.location)
                .eq(candidates.iter().map(|one| &one.location));
            if !is_same {
                overridden.push((trigger, candidates));
            }
        }
        overridden
    }

    fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |node| self.tree[*node].parent)
    }

    /// True if a state is another one or nested in it.
    fn is_inside(&self, node: usize, outer: usize) -> bool {
        self.ancestors(node).any(|it| it == outer)
    }

    /// Follows `initial` from a node to a leaf state or to a state with a history.
    fn resolve_entry(&self, mut node: usize) -> usize {
        while let (Some(initial), false) = (self.tree[node].initial, self.tree[node].history) {
            node = initial;
        }
        node
    }

    /// Returns the target attribute of a transition. Common ancestors of both ends are not left: a
    /// self-transition has no target, and a transition of a composite state to its children is
    /// internal.
    fn scxml_target(&self, source: usize, target: usize) -> String {
        let resolve_entry = self.resolve_entry(target);
        if resolve_entry == source && self.tree[source].state.is_some() {
            return String::new();
        }
        let name = if self.tree[resolve_entry].history {
            self.history_id(resolve_entry)
        } else if self.is_inside(source, target) {
            self.tree[resolve_entry].name.clone()
        } else {
            self.tree[target].name.clone()
        };
        let stays = self.is_inside(resolve_entry, source);
        let kind = if stays { " type=\"internal\"" } else { "" };
        format!(" target=\"{name}\"{kind}")
    }

    fn scxml_transition(
        &self,
        source: usize,
        transition: &Transition,
        depth: usize,
        text: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        let target = self.scxml_target(source, transition.target);
        let guard = transition.guard.as_ref();
        let guard = guard
            .map_or(String::new(), |guard| format!(" cond=\"{}\"", ecmascript_attribute(guard)));
        if let Some(threshold) = &transition.threshold {
            let has_inside = !self.tree[source].children.is_empty();
            let which = if has_inside { "the state inside" } else { "the state" };
            let _ = writeln!(text, "{indent}<!-- when the ticks in {which} exceed {threshold} -->");
        }
        if transition.oracle {
            let _ = writeln!(text, "{indent}<!-- the oracle decides -->");
        }
        let event = self.trigger_name(transition.trigger);
        let _ = write!(text, "{indent}<transition event=\"{event}\"{target}{guard}");
        if transition.actions.is_empty() {
            text.push_str("/>\n");
            return;
        }
        text.push_str(">\n");
        scxml_actions(&transition.actions, depth + 1, text);
        let _ = writeln!(text, "{indent}</transition>");
    }
}

/// Writes actions. The compiler has checked their forms.
fn scxml_actions(actions: &[String], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for action in actions {
        let verb_ends = action.find(|c: char| !c.is_alphabetic()).unwrap_or(action.len());
        let (verb, rest) = action.split_at(verb_ends);
        let assignment = rest.split_once('=').filter(|_| verb == "set" || verb == "add");
        if let Some((location, value)) = assignment {
            let (location, value) = (location.trim(), ecmascript_attribute(value.trim()));
            let value = if verb == "add" { format!("{location} + ({value})") } else { value };
            let _ = writeln!(text, "{indent}<assign location=\"{location}\" expr=\"{value}\"/>");
        } else {
            let content = escaped(rest.trim());
            let _ = writeln!(
                text,
                "{indent}<send event=\"request.{verb}\"><content>{content}</content></send>"
            );
        }
    }
}

/// Escapes an expression for an ECMAScript attribute; a backslash is literal in a chart.
fn ecmascript_attribute(expression: &str) -> String {
    escaped(&expression.replace('\\', "\\\\"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
