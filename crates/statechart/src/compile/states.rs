//! The state tree.

use std::collections::BTreeMap;

use super::{ChartDraft, EXPRESSIONS_MAX, HISTORIES_MAX, item_location};
use crate::action::{ActionBody, CompiledAction};
use crate::chart::STATES_MAX;
use crate::error::ChartError;
use crate::ids::StateId;
use crate::source::StateSource;
use crate::value::ScalarValue;

#[derive(Default)]
pub(super) struct StateTree {
    pub(super) nodes: Vec<DraftState>,
    pub(super) by_name: BTreeMap<String, usize>,
    /// The leaf states.
    pub(super) leaves: Vec<usize>,
}

#[derive(Default)]
pub(super) struct DraftState {
    pub(super) source: StateSource,
    pub(super) location: String,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// The child that is entered first.
    pub(super) initial: Option<usize>,
    pub(super) state: Option<StateId>,
    pub(super) entry: Vec<u16>,
    pub(super) exit: Vec<u16>,
    /// The index of its history state.
    pub(super) history_state: Option<u8>,
}

impl StateTree {
    pub(super) fn new(states: &[StateSource]) -> Self {
        let mut tree = Self::default();
        tree.add(states, "states", None);
        tree
    }

    fn add(&mut self, states: &[StateSource], location: &str, parent: Option<usize>) {
        for (index, source) in states.iter().enumerate() {
            let location = format!("{location}[{index}]");
            let number = self.nodes.len();
            let state = source.states.is_empty().then_some(self.leaves.len());
            if state.is_some() {
                self.leaves.push(number);
            }
            self.nodes.push(DraftState {
                source: StateSource { states: Vec::new(), ..source.clone() },
                location: location.clone(),
                parent,
                // Too many states are reported separately; this value is then unused.
                state: state.map(|leaf| StateId(u8::try_from(leaf).unwrap_or(u8::MAX))),
                ..DraftState::default()
            });
            self.by_name.entry(source.name.clone()).or_insert(number);
            if let Some(parent) = parent {
                self.nodes[parent].children.push(number);
            }
            self.add(&source.states, &format!("{location}.states"), Some(number));
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

    /// Iterates over a node and its ancestors, from the inside out.
    pub(super) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> + use<'_> {
        std::iter::successors(Some(node), |node| self.nodes[*node].parent)
    }

    pub(super) fn is_inside(&self, node: usize, outer: usize) -> bool {
        self.ancestors(node).any(|node| node == outer)
    }

    /// Returns the leaf state that entering a node leads to, without regard to histories.
    pub(super) fn initial_leaf(&self, mut node: usize) -> Option<StateId> {
        while let Some(initial) = self.nodes[node].initial {
            node = initial;
        }
        self.nodes[node].state
    }

    /// Follows `initial` from a node to a leaf state or to a state with a history.
    pub(super) fn resolve_entry(&self, mut node: usize) -> usize {
        while let (None, Some(initial)) = (self.nodes[node].history_state, self.nodes[node].initial)
        {
            node = initial;
        }
        node
    }

    /// Returns the leaf states that entering a node may lead to, given those reached so far. A
    /// history leads to the last active child or to the initial one.
    pub(super) fn possible_leaves(&self, node: usize, reached: &[bool]) -> Vec<StateId> {
        let landing = &self.nodes[self.resolve_entry(node)];
        if landing.history_state.is_none() {
            return landing.state.into_iter().collect();
        }
        let was_inside = |child: usize| {
            let reached = self.leaves.iter().zip(reached).filter(|(_, reached)| **reached);
            reached.into_iter().any(|(leaf, _)| self.is_inside(*leaf, child))
        };
        let children = landing.children.iter().copied();
        let children =
            children.filter(|child| Some(*child) == landing.initial || was_inside(*child));
        children.flat_map(|child| self.possible_leaves(child, reached)).collect()
    }
}

impl ChartDraft {
    pub(super) fn check_states(&mut self, states: &[StateSource]) {
        if states.is_empty() {
            self.error("states", "states is missing or empty: a chart has at least one state");
        }
        if self.tree.leaves.len() > STATES_MAX {
            let count = self.tree.leaves.len();
            let message = format!("there are {count} states, and the limit states is {STATES_MAX}");
            self.error("states", message);
        }
        let mut history_states = 0_usize;
        for node in 0..self.tree.nodes.len() {
            self.check_state(node);
            let DraftState { source, location, children, .. } = &self.tree.nodes[node];
            if source.history && children.is_empty() {
                let location = format!("{location}.history");
                self.error(location, "only a state with states inside has a history");
            } else if source.history {
                self.tree.nodes[node].history_state =
                    Some(u8::try_from(history_states).unwrap_or(u8::MAX));
                history_states += 1;
            }
        }
        if history_states > HISTORIES_MAX {
            let message = format!(
                "{history_states} states have a history, and the limit histories is {HISTORIES_MAX}"
            );
            self.error("states", message);
        }
    }

    fn check_state(&mut self, node: usize) {
        let source = self.tree.nodes[node].source.clone();
        let location = self.tree.nodes[node].location.clone();
        self.check_name(&location, "state", &source.name);
        let first = self.tree.by_name.get(&source.name).copied();
        if let Some(first) = first.filter(|first| *first != node && !source.name.is_empty()) {
            let (name, first) = (&source.name, &self.tree.nodes[first].location);
            let message = format!("state \"{name}\" is declared twice, first in {first}");
            self.error(&location, message);
        }
        self.check_inner_initial(node, &source, &location);
        self.tree.nodes[node].entry = self.effects(&location, "entry", &source.entry);
        self.tree.nodes[node].exit = self.effects(&location, "exit", &source.exit);
    }

    fn check_inner_initial(&mut self, node: usize, source: &StateSource, location: &str) {
        let children = &self.tree.nodes[node].children;
        let at = format!("{location}.initial");
        match (&source.initial, children.first()) {
            (None, None) => {}
            (None, Some(_)) => {
                let inside =
                    children.iter().map(|child| self.tree.name(*child)).collect::<Vec<_>>();
                let message =
                    format!("state \"{}\" has states inside, and no initial", source.name);
                let error = ChartError::new(location, message).allowed(inside.join(", "));
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
                    let outer = &source.name;
                    let message = format!(
                        "initial \"{initial}\" is not one of the states inside \"{outer}\""
                    );
                    let error = ChartError::new(at, message).suggest_from(initial, names);
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
            let message = format!("initial \"{initial}\" is not one of the states");
            let error = ChartError::new("initial", message);
            self.errors.push(error.suggest_from(initial, self.tree.names()));
            return None;
        };
        self.tree.initial_leaf(*node)
    }

    pub(super) fn find_state(&mut self, location: &str, what: &str, name: &str) -> Option<usize> {
        if name.is_empty() {
            self.error(location, format!("{what} is missing or empty"));
            return None;
        }
        let node = self.tree.by_name.get(name).copied();
        if node.is_none() {
            let error = ChartError::new(location, format!("{what}: unknown state \"{name}\""));
            self.errors.push(error.suggest_from(name, self.tree.names()));
        }
        node
    }

    /// Compiles the actions at one location.
    pub(super) fn effects(&mut self, location: &str, name: &str, texts: &[String]) -> Vec<u16> {
        let mut effects = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match CompiledAction::compile(text, &mut self.names)
                .and_then(|effect| self.check_constant(effect))
            {
                Ok(effect) => {
                    effects.push(self.next_index("actions", self.effects.len()));
                    self.effects.push(effect);
                }
                Err(error) => {
                    self.errors.push(error.at(item_location(location, name, texts.len(), index)));
                }
            }
        }
        effects
    }

    /// Rejects an assignment of a constant that the field may not have.
    fn check_constant(&self, effect: CompiledAction) -> Result<CompiledAction, ChartError> {
        if let ActionBody::SetField(field, code) = &effect.body
            && let Some(number) = code.constant()
        {
            let field = &self.names.fields[field.index()];
            field
                .check(&ScalarValue::Number(number))
                .map_err(|reason| format!("\"{}\" can never be done: {reason}", effect.text))?;
        }
        Ok(effect)
    }

    pub(super) fn next_index(&mut self, what: &str, length: usize) -> u16 {
        if length == EXPRESSIONS_MAX {
            let message =
                format!("there are too many {what}: the limit expressions is {EXPRESSIONS_MAX}");
            self.error("", message);
        }
        u16::try_from(length).unwrap_or(u16::MAX)
    }
}
