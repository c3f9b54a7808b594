//! A chart as SCXML, the World Wide Web Consortium's format for statecharts.
//!
//! Guards and what actions compute are ECMAScript as they stand; `draw` and `chance` are defined in a
//! script. A timeout is the event `timeout`: counting ticks is up to whoever runs the chart. Requests
//! of agents are events that begin with `request.`.

use std::fmt::Write;

use serde_json::{Map, Value as Json};

use crate::chart::{Chart, StateNode, Transition};
use crate::ids::StateId;
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
        for (number, node) in self.tree.iter().enumerate() {
            if node.parent.is_none() {
                self.scxml_state(number, 1, &mut text);
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

    fn scxml_state(&self, number: usize, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        let node = &self.tree[number];
        // However a state with a history is entered, it is entered where it was last left.
        let initial = node.initial.map(|initial| {
            if node.history { history_id(node) } else { self.tree[initial].name.clone() }
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
            let (history, first) = (history_id(node), &self.tree[initial].name);
            let _ = writeln!(
                text,
                "{indent}  <history id=\"{history}\" type=\"shallow\"><transition \
                 target=\"{first}\"/></history>"
            );
        }
        for transition in self.scxml_order(number) {
            self.scxml_transition(number, transition, depth + 1, text);
        }
        for child in &node.children {
            self.scxml_state(*child, depth + 1, text);
        }
        let _ = writeln!(text, "{indent}</state>");
    }

    /// The transitions of a state. There is no oracle elsewhere, so of those that are left to it the
    /// one to its default comes first.
    fn scxml_order(&self, number: usize) -> Vec<&Transition> {
        let around = |node: usize| std::iter::successors(Some(node), |it| self.tree[*it].parent);
        // What leads from all states counts as one of the outermost, in the order of the file.
        let is_here = |one: &&Transition| {
            if one.from_any {
                self.tree[number].parent.is_none()
                    && one.sources.iter().any(|source| around(*source).any(|it| it == number))
            } else {
                one.sources.contains(&number)
            }
        };
        let mut ordered: Vec<&Transition> = self.transitions.iter().filter(is_here).collect();
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

    fn scxml_entered(&self, mut node: usize) -> Option<StateId> {
        while let Some(initial) = self.tree[node].initial {
            node = initial;
        }
        self.tree[node].state
    }

    /// Where a transition of a state leads. What is around both ends is not left: a state that goes
    /// to itself has no target, and one that has others inside goes there without leaving itself.
    fn scxml_target(&self, source: usize, target: usize) -> String {
        let around =
            |node: usize| std::iter::successors(Some(node), |node| self.tree[*node].parent);
        let node = &self.tree[target];
        let name = match node.initial {
            None if source == target => return String::new(),
            Some(_) if node.history => history_id(node),
            Some(initial) if around(source).any(|outer| outer == target) => {
                self.tree[initial].name.clone()
            }
            Some(_) | None => node.name.clone(),
        };
        let stays = around(target).any(|outer| outer == source);
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
        let guard = guard.map_or(String::new(), |guard| format!(" cond=\"{}\"", escaped(guard)));
        if let Some(threshold) = &transition.threshold {
            let _ =
                writeln!(text, "{indent}<!-- when the ticks in the state exceed {threshold} -->");
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

fn history_id(node: &StateNode) -> String {
    format!("{}_history", node.name)
}

/// Actions were checked when the chart was compiled, so they have one of their few forms.
fn scxml_actions(actions: &[String], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    for action in actions {
        let (verb, rest) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
        let assignment = rest.split_once('=').filter(|_| verb == "set" || verb == "add");
        if let Some((place, value)) = assignment {
            let (place, value) = (place.trim(), escaped(value.trim()));
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
