//! A chart as SCXML, the World Wide Web Consortium's format for statecharts.
//!
//! Guards and what actions compute are ECMAScript as they stand; `draw` and `chance` are defined in a
//! script. A timeout is the event `timeout`: counting ticks is up to whoever runs the chart. Requests
//! of agents are events that begin with `request.`.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use crate::chart::{Chart, Transition};
use crate::ids::{StateId, TriggerId};
use crate::value::Value;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const SCRIPT: &str = "  <script>function draw() { return Math.random(); } \
    function chance(p) { return draw() &lt; p; }</script>\n";

impl Chart {
    /// The chart as SCXML.
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
        let told: Vec<Vec<&Transition>> =
            (0..self.tree.len()).map(|number| self.scxml_order(number)).collect();
        for (number, node) in self.tree.iter().enumerate() {
            if node.parent.is_none() {
                self.scxml_state(number, 1, &told, &mut text);
            }
        }
        text.push_str("</scxml>\n");
        text
    }

    fn scxml_data(&self, text: &mut String) {
        let object = |values: Vec<(&String, &Option<Value>)>| {
            let values = values
                .into_iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_ref()?.to_json())));
            Json::Object(values.collect::<Map<_, _>>()).to_string()
        };
        let agent = self.fields.iter().map(|field| (&field.name, &field.default)).collect();
        let world = self.worlds.iter().map(|world| (&world.name, &world.default)).collect();
        text.push_str("  <datamodel>\n");
        for (id, value) in
            [("agent", object(agent)), ("world", object(world)), ("context", object(Vec::new()))]
        {
            let _ = writeln!(text, "    <data id=\"{id}\" expr=\"{}\"/>", escaped(&value));
        }
        text.push_str("  </datamodel>\n");
    }

    /// A state, with what each state tells of transitions.
    fn scxml_state(
        &self,
        number: usize,
        depth: usize,
        told: &[Vec<&Transition>],
        text: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        let node = &self.tree[number];
        // However a state with a history is entered, it is entered where it was last left.
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
        let apart = self.scxml_apart(number, told);
        let is_apart = |one: &&Transition| apart.iter().any(|(trigger, _)| *trigger == one.trigger);
        for transition in told[number].iter().copied().filter(|one| !is_apart(one)) {
            self.scxml_transition(number, transition, depth + 1, text);
        }
        for (trigger, candidates) in &apart {
            for transition in candidates {
                self.scxml_transition(number, transition, depth + 1, text);
            }
            if candidates.last().is_none_or(|last| last.guard.is_some()) {
                // The states around this one have no say.
                let event = self.trigger_name(*trigger);
                let _ = writeln!(text, "{indent}  <transition event=\"{event}\"/>");
            }
        }
        for child in &node.children {
            self.scxml_state(*child, depth + 1, told, text);
        }
        let _ = writeln!(text, "{indent}</state>");
    }

    /// The transitions of a state. There is no oracle elsewhere, so of those that are left to it the
    /// one to its default comes first.
    fn scxml_order(&self, number: usize) -> Vec<&Transition> {
        // What leads from all states counts as one of the outermost, in the order of the file.
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
            if !oracle || self.scxml_entered(*target) != self.oracle_default {
                continue;
            }
            let rival = |one: &&Transition| one.oracle && one.trigger == *trigger;
            if let Some(first) = ordered[..late].iter().position(rival) {
                ordered[first..=late].rotate_right(1);
            }
        }
        ordered
    }

    /// The name of a state's history, which is no state's.
    fn history_id(&self, node: usize) -> String {
        let mut id = format!("{}_history", self.tree[node].name);
        while self.tree.iter().any(|node| node.name == id) {
            id.push('_');
        }
        id
    }

    fn scxml_entered(&self, mut node: usize) -> Option<StateId> {
        while let Some(initial) = self.tree[node].initial {
            node = initial;
        }
        self.tree[node].state
    }

    /// The triggers of a state that agents can be in for which the states around it would lead
    /// elsewhere than they do here, each with its candidates. Here a transition leaves nothing that is
    /// around both of its ends, and what leads from all states does not lead from its target.
    fn scxml_apart(
        &self,
        leaf: usize,
        all: &[Vec<&Transition>],
    ) -> Vec<(TriggerId, Vec<&Transition>)> {
        let Some(state) = self.tree[leaf].state else { return Vec::new() };
        let is_final = |one: &&Transition| one.guard.is_none() && !one.oracle;
        let mut apart = Vec::new();
        for (number, _) in self.triggers.iter().enumerate() {
            let Some(trigger) = u8::try_from(number).ok().map(TriggerId) else { continue };
            let rows = self.group(state, trigger).map(|row| usize::from(self.rows[row].transition));
            let candidates: Vec<&Transition> = rows.map(|row| &self.transitions[row]).collect();
            let mut told: Vec<&Transition> = Vec::new();
            let mut is_same = true;
            let mut inner = leaf;
            for node in self.around(leaf) {
                for one in all[node].iter().copied().filter(|one| one.trigger == trigger) {
                    is_same &= node == leaf || !self.is_inside(self.landing(one.target), inner);
                    told.push(one);
                }
                inner = node;
                if told.iter().any(is_final) {
                    break;
                }
            }
            let candidates = self.scxml_default_first(candidates);
            is_same &=
                told.iter().map(|one| &one.place).eq(candidates.iter().map(|one| &one.place));
            if !is_same {
                apart.push((trigger, candidates));
            }
        }
        apart
    }

    fn around(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |node| self.tree[*node].parent)
    }

    /// Whether a state is another one, or inside it.
    fn is_inside(&self, node: usize, outer: usize) -> bool {
        self.around(node).any(|it| it == outer)
    }

    /// Where one lands who goes to a state: in one that agents can be in, or one with a history.
    fn landing(&self, mut node: usize) -> usize {
        while let (Some(initial), false) = (self.tree[node].initial, self.tree[node].history) {
            node = initial;
        }
        node
    }

    /// Where a transition of a state leads. What is around both ends is not left: a state that goes
    /// to itself has no target, and one that has others inside goes there without leaving itself.
    fn scxml_target(&self, source: usize, target: usize) -> String {
        let landing = self.landing(target);
        if landing == source && self.tree[source].state.is_some() {
            return String::new();
        }
        let name = if self.tree[landing].history {
            self.history_id(landing)
        } else if self.is_inside(source, target) {
            self.tree[landing].name.clone()
        } else {
            self.tree[target].name.clone()
        };
        let stays = self.is_inside(landing, source);
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
        let guard = guard.map_or(String::new(), |guard| format!(" cond=\"{}\"", script(guard)));
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

/// Actions were checked when the chart was compiled, so they have one of their few forms.
fn scxml_actions(actions: &[String], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for action in actions {
        let verb_ends = action.find(|c: char| !c.is_alphabetic()).unwrap_or(action.len());
        let (verb, rest) = action.split_at(verb_ends);
        let assignment = rest.split_once('=').filter(|_| verb == "set" || verb == "add");
        if let Some((place, value)) = assignment {
            let (place, value) = (place.trim(), script(value.trim()));
            let value = if verb == "add" { format!("{place} + ({value})") } else { value };
            let _ = writeln!(text, "{indent}<assign location=\"{place}\" expr=\"{value}\"/>");
        } else {
            let content = escaped(rest.trim());
            let _ = writeln!(
                text,
                "{indent}<send event=\"request.{verb}\"><content>{content}</content></send>"
            );
        }
    }
}

/// An expression as ECMAScript, in which a backslash in a text says that something follows.
fn script(expression: &str) -> String {
    escaped(&expression.replace('\\', "\\\\"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
