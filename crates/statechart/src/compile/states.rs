//! The tree of states.

use std::collections::BTreeMap;

use super::{Draft, HISTORIES_MAX, item};
use crate::chart::STATES_MAX;
use crate::effect::{Effect, EffectBody};
use crate::error::ChartError;
use crate::ids::StateId;
use crate::source::StateSource;
use crate::value::Value;

pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) by_name: BTreeMap<String, usize>,
    /// The nodes that agents can be in.
    pub(super) leaves: Vec<usize>,
}

pub(super) struct Node {
    pub(super) source: StateSource,
    pub(super) place: String,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// The child that is entered first.
    pub(super) initial: Option<usize>,
    pub(super) state: Option<StateId>,
    pub(super) entry: Vec<u16>,
    pub(super) exit: Vec<u16>,
    /// The number of its history.
    pub(super) memory: Option<u8>,
}

impl Tree {
    pub(super) fn new(states: &[StateSource]) -> Self {
        let mut tree = Self { nodes: Vec::new(), by_name: BTreeMap::new(), leaves: Vec::new() };
        tree.add(states, "states", None);
        tree
    }

    fn add(&mut self, states: &[StateSource], place: &str, parent: Option<usize>) {
        for (index, source) in states.iter().enumerate() {
            let place = format!("{place}[{index}]");
            let number = self.nodes.len();
            let state = source.states.is_empty().then_some(self.leaves.len());
            if state.is_some() {
                self.leaves.push(number);
            }
            self.nodes.push(Node {
                source: StateSource { states: Vec::new(), ..source.clone() },
                place: place.clone(),
                parent,
                children: Vec::new(),
                initial: None,
                // Too many of them is an error of its own, so this one does not matter then.
                state: state.map(|leaf| StateId(u8::try_from(leaf).unwrap_or(u8::MAX))),
                entry: Vec::new(),
                exit: Vec::new(),
                memory: None,
            });
            self.by_name.entry(source.name.clone()).or_insert(number);
            if let Some(parent) = parent {
                self.nodes[parent].children.push(number);
            }
            self.add(&source.states, &format!("{place}.states"), Some(number));
        }
    }

    pub(super) fn name(&self, node: usize) -> &str {
        &self.nodes[node].source.name
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.source.name.as_str())
    }

    pub(super) fn state_name(&self, state: StateId) -> &str {
        self.name(self.leaves[state.index()])
    }

    pub(super) fn states(&self) -> impl Iterator<Item = StateId> + use<'_> {
        self.leaves.iter().filter_map(|leaf| self.nodes[*leaf].state)
    }

    /// A node and those around it, from the inside out.
    pub(super) fn path(&self, node: usize) -> impl Iterator<Item = usize> + use<'_> {
        std::iter::successors(Some(node), |node| self.nodes[*node].parent)
    }

    pub(super) fn is_inside(&self, node: usize, outer: usize) -> bool {
        self.path(node).any(|node| node == outer)
    }

    /// The state that an agent is in when it enters a node.
    pub(super) fn entered(&self, mut node: usize) -> Option<StateId> {
        while let Some(initial) = self.nodes[node].initial {
            node = initial;
        }
        self.nodes[node].state
    }

    /// Where one who enters a node lands: a state that agents can be in, or one whose history says
    /// how to go on.
    pub(super) fn landing(&self, mut node: usize) -> usize {
        while let (None, Some(initial)) = (self.nodes[node].memory, self.nodes[node].initial) {
            node = initial;
        }
        node
    }

    /// The states that one may be in then who enters a node, when these were reached before. A history
    /// leads back to what was left, or to what is entered first.
    pub(super) fn entries(&self, node: usize, reached: &[bool]) -> Vec<StateId> {
        let landing = &self.nodes[self.landing(node)];
        if landing.memory.is_none() {
            return landing.state.into_iter().collect();
        }
        let was_inside = |child: usize| {
            let reached = self.leaves.iter().zip(reached).filter(|(_, reached)| **reached);
            reached.into_iter().any(|(leaf, _)| self.is_inside(*leaf, child))
        };
        let children = landing.children.iter().copied();
        let children =
            children.filter(|child| Some(*child) == landing.initial || was_inside(*child));
        children.flat_map(|child| self.entries(child, reached)).collect()
    }
}

impl Draft {
    pub(super) fn check_states(&mut self, states: &[StateSource]) {
        if states.is_empty() {
            self.error("states", "states is missing or empty: a chart has at least one state");
        }
        if self.tree.leaves.len() > STATES_MAX {
            let count = self.tree.leaves.len();
            self.error(
                "states",
                format!("there are {count} states, and the limit states is {STATES_MAX}"),
            );
        }
        let mut memories = 0_usize;
        for node in 0..self.tree.nodes.len() {
            self.check_state(node);
            let Node { source, place, children, .. } = &self.tree.nodes[node];
            if source.history && children.is_empty() {
                let place = format!("{place}.history");
                self.error(place, "only a state with states inside has a history");
            } else if source.history {
                self.tree.nodes[node].memory = Some(u8::try_from(memories).unwrap_or(u8::MAX));
                memories += 1;
            }
        }
        if memories > HISTORIES_MAX {
            let message = format!(
                "{memories} states have a history, and the limit histories is {HISTORIES_MAX}"
            );
            self.error("states", message);
        }
    }

    fn check_state(&mut self, node: usize) {
        let source = self.tree.nodes[node].source.clone();
        let place = self.tree.nodes[node].place.clone();
        self.check_name(&place, "state", &source.name);
        let first = self.tree.by_name.get(&source.name).copied();
        if let Some(first) = first.filter(|first| *first != node && !source.name.is_empty()) {
            let first = self.tree.nodes[first].place.clone();
            self.error(
                &place,
                format!("state \"{}\" is declared twice, first in {first}", source.name),
            );
        }
        self.check_inner_initial(node, &source, &place);
        self.tree.nodes[node].entry = self.effects(&place, "entry", &source.entry);
        self.tree.nodes[node].exit = self.effects(&place, "exit", &source.exit);
    }

    fn check_inner_initial(&mut self, node: usize, source: &StateSource, place: &str) {
        let children = &self.tree.nodes[node].children;
        let at = format!("{place}.initial");
        match (&source.initial, children.first()) {
            (None, None) => {}
            (None, Some(_)) => {
                let inside =
                    children.iter().map(|child| self.tree.name(*child)).collect::<Vec<_>>();
                let message =
                    format!("state \"{}\" has states inside, and no initial", source.name);
                let error = ChartError::new(place, message).allowed(inside.join(", "));
                self.errors.push(error);
            }
            (Some(_), None) => {
                self.error(at, "only a state with states inside has an initial");
            }
            (Some(initial), Some(_)) => {
                let names = children.iter().map(|child| self.tree.name(*child));
                let child = children.iter().find(|child| self.tree.name(**child) == initial);
                if let Some(child) = child {
                    self.tree.nodes[node].initial = Some(*child);
                } else {
                    let message = format!(
                        "initial \"{initial}\" is not one of the states inside \"{}\"",
                        source.name
                    );
                    let error = ChartError::new(at, message).one_of(initial, names);
                    self.errors.push(error);
                }
            }
        }
    }

    pub(super) fn check_initial(&mut self, initial: &str) -> Option<StateId> {
        if initial.is_empty() {
            self.error("initial", "initial is missing or empty");
            return None;
        }
        let Some(node) = self.tree.by_name.get(initial) else {
            let error = ChartError::new(
                "initial",
                format!("initial \"{initial}\" is not one of the states"),
            );
            let error = error.one_of(initial, self.tree.names());
            self.errors.push(error);
            return None;
        };
        self.tree.entered(*node)
    }

    /// A state by its name.
    pub(super) fn find_state(&mut self, place: &str, what: &str, name: &str) -> Option<usize> {
        if name.is_empty() {
            self.error(place, format!("{what} is missing or empty"));
            return None;
        }
        let node = self.tree.by_name.get(name).copied();
        if node.is_none() {
            let error = ChartError::new(place, format!("{what}: unknown state \"{name}\""));
            self.errors.push(error.one_of(name, self.tree.names()));
        }
        node
    }

    /// Compiles the actions that stand in one place.
    pub(super) fn effects(&mut self, place: &str, name: &str, texts: &[String]) -> Vec<u16> {
        let mut effects = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match Effect::compile(text, &mut self.vocabulary).and_then(|effect| self.known(effect))
            {
                Ok(effect) => {
                    effects.push(self.number_of_next("actions", self.effects.len()));
                    self.effects.push(effect);
                }
                Err(error) => self.errors.push(error.at(item(place, name, texts.len(), index))),
            }
        }
        effects
    }

    /// What is known to fail whenever it is done is refused.
    fn known(&self, effect: Effect) -> Result<Effect, ChartError> {
        if let EffectBody::SetField(field, code) = &effect.body
            && let Some(number) = code.constant()
        {
            let field = &self.vocabulary.fields[field.index()];
            field
                .check(&Value::Number(number))
                .map_err(|reason| format!("\"{}\" can never be done: {reason}", effect.text))?;
        }
        Ok(effect)
    }

    pub(super) fn number_of_next(&mut self, what: &str, length: usize) -> u16 {
        use super::EXPRESSIONS_MAX;
        if length == EXPRESSIONS_MAX {
            self.error(
                "",
                format!("there are too many {what}: the limit expressions is {EXPRESSIONS_MAX}"),
            );
        }
        u16::try_from(length).unwrap_or(u16::MAX)
    }
}
