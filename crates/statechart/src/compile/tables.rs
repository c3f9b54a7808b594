//! The tables that are fired.

use super::transitions::Checked;
use super::{Draft, HISTORY_DEPTH_DEFAULT, WAYS_MAX};
use crate::chart::{
    Chart, Entry, EntryId, Quick, Row, StateNode, TIMEOUT, Threshold, Transition,
    WAYS_INTO_STATE_MAX, Way, WayId,
};
use crate::error::ChartError;
use crate::expression::Operand;
use crate::fire::Step;
use crate::guard::{Guard, GuardBody};
use crate::ids::{StateId, TriggerId};
use crate::source::ChartSource;

/// Builds the tables of a chart without mistakes.
pub(super) fn build(
    draft: Draft,
    source: &ChartSource,
    initial: StateId,
    oracle_default: Option<usize>,
) -> Result<Chart, Vec<ChartError>> {
    let mut tables = Tables::new(&draft);
    let states: Vec<StateId> = draft.tree.states().collect();
    for state in states {
        for trigger in 0..draft.triggers.len() {
            tables.group(state, trigger, oracle_default);
            if tables.ways.len() > WAYS_MAX {
                let message = format!(
                    "there are too many ways from state to state: the limit ways is {WAYS_MAX}, and \
                     each transition has one from each of its sources to each state that a history \
                     may lead to"
                );
                return Err(vec![ChartError::new("transitions", message)]);
            }
        }
    }
    tables.starts.push(count(tables.rows.len()));
    if !tables.errors.is_empty() {
        return Err(tables.errors);
    }
    let Tables { rows, starts, entries, ways, performed, remembered, into, draws, .. } = tables;
    let default = oracle_default.and_then(|node| draft.tree.entered(node));
    let timeout = draft.triggers.iter().position(|name| name == crate::chart::TIMEOUT);
    Ok(Chart {
        name: source.name.clone(),
        states: draft.tree.leaves.iter().map(|leaf| small(*leaf)).collect(),
        tree: tree(&draft),
        initial,
        timeout: timeout.map(trigger_id),
        transitions: draft.checked.iter().map(|checked| transition(&draft, checked)).collect(),
        thresholds: thresholds(&draft),
        memories: memories(&draft),
        triggers: draft.triggers.into(),
        fields: draft.vocabulary.fields.into(),
        worlds: draft.vocabulary.worlds.into(),
        contexts: draft.vocabulary.contexts.into(),
        starts: starts.into(),
        rows: rows.into(),
        entries: entries.into(),
        ways: ways.into(),
        effects: draft.effects.into(),
        performed: performed.into(),
        remembered: remembered.into(),
        guards: draft.guards.into(),
        into: into.into_iter().map(Into::into).collect(),
        oracle_default: default,
        depth: source.max_history_depth.unwrap_or(HISTORY_DEPTH_DEFAULT),
        draws,
    })
}

struct Tables<'d> {
    draft: &'d Draft,
    starts: Vec<u32>,
    rows: Vec<Row>,
    entries: Vec<Entry>,
    ways: Vec<Way>,
    performed: Vec<u16>,
    remembered: Vec<(u8, u8)>,
    into: Vec<Vec<(StateId, TriggerId)>>,
    /// The most draws of a state and trigger.
    draws: u32,
    errors: Vec<ChartError>,
}

impl<'d> Tables<'d> {
    fn new(draft: &'d Draft) -> Self {
        Self {
            draft,
            starts: Vec::new(),
            rows: Vec::new(),
            entries: Vec::new(),
            ways: Vec::new(),
            performed: Vec::new(),
            remembered: Vec::new(),
            into: vec![Vec::new(); draft.tree.leaves.len()],
            draws: 0,
            errors: Vec::new(),
        }
    }

    fn group(&mut self, state: StateId, trigger: usize, oracle_default: Option<usize>) {
        let draft = self.draft;
        self.starts.push(count(self.rows.len()));
        let candidates = draft.candidates(state, trigger);
        let draws = |transition: usize| {
            let guard = draft.checked[transition].guard;
            guard.map_or(0, |guard| draft.guards[usize::from(guard)].draws())
        };
        let first_way = self.ways.len();
        let effect_draw = candidates.iter().map(|one| draws(one.transition)).sum();
        let mut first_draw = 0;
        for candidate in &candidates {
            let checked = &draft.checked[candidate.transition];
            let landing = draft.tree.landing(checked.target);
            let entry = self.entry(state, landing, checked.trigger, &checked.effects);
            self.rows.push(Row {
                quick: quick(
                    checked.guard.map(|guard| &draft.guards[usize::from(guard)]),
                    first_draw,
                ),
                plain: self.plain(entry),
                guard: checked.guard,
                oracle: checked.oracle,
                is_default: oracle_default.map(|node| draft.tree.landing(node)) == Some(landing),
                entry,
                first_draw,
                effect_draw,
                transition: small(candidate.transition),
            });
            first_draw += draws(candidate.transition);
        }
        let ways = self.ways[first_way..].iter().map(|way| self.draws_on(way));
        self.draws = self.draws.max(effect_draw + ways.max().unwrap_or(0));
    }

    /// How many draws the actions on a way make.
    fn draws_on(&self, way: &Way) -> u32 {
        let (begin, end) = way.effects;
        let effects = self.performed[begin as usize..end as usize].iter();
        effects.map(|effect| self.draft.effects[usize::from(*effect)].draws()).sum()
    }

    /// How to find the way from a state to where one [lands](super::states::Tree::landing).
    fn entry(&mut self, from: StateId, landing: usize, trigger: usize, effects: &[u16]) -> Entry {
        let draft = self.draft;
        let node = &draft.tree.nodes[landing];
        let Some(memory) = node.memory else {
            return Entry::Way(self.way(from, landing, trigger, effects));
        };
        let inside = node.children.iter().map(|child| draft.tree.landing(*child));
        // What follows on one of them stands before all of them, so that they stand together.
        let inside: Vec<Entry> =
            inside.map(|landing| self.entry(from, landing, trigger, effects)).collect();
        let first = EntryId(count(self.entries.len()));
        self.entries.extend(inside);
        Entry::Recall { memory, first }
    }

    /// Where one ends, if nothing else happens on the way.
    fn plain(&self, entry: Entry) -> Option<Step> {
        let Entry::Way(way) = entry else { return None };
        let Way { to, code, effects, remembers } = self.ways[way.0 as usize];
        let is_plain = effects.0 == effects.1 && remembers.0 == remembers.1;
        is_plain.then_some(Step { to, code })
    }

    /// A way from one state to another, with what happens on leaving and entering states.
    fn way(&mut self, from: StateId, target: usize, trigger: usize, effects: &[u16]) -> WayId {
        let tree = &self.draft.tree;
        let source = tree.leaves[from.index()];
        // One lands in a state that agents can be in, or in one with a history.
        let to = tree.nodes[target].state.unwrap_or(from);
        let (first_effect, first_remembered) = (self.performed.len(), self.remembered.len());
        for left in tree.path(source).filter(|left| !tree.is_inside(target, *left)) {
            self.performed.extend(&tree.nodes[left].exit);
            if let Some(memory) = tree.nodes[left].memory {
                let inside = |child: &usize| tree.is_inside(source, *child);
                let child = tree.nodes[left].children.iter().position(inside);
                self.remembered.extend(child.map(|child| (memory, tiny(child))));
            }
        }
        self.performed.extend(effects);
        let mut entered: Vec<usize> =
            tree.path(target).filter(|entered| !tree.is_inside(source, *entered)).collect();
        entered.reverse();
        for node in entered {
            self.performed.extend(&tree.nodes[node].entry);
        }
        let code = self.code(from, to, trigger);
        let way = WayId(count(self.ways.len()));
        self.ways.push(Way {
            to,
            code,
            effects: (count(first_effect), count(self.performed.len())),
            remembers: (count(first_remembered), count(self.remembered.len())),
        });
        way
    }

    fn code(&mut self, from: StateId, to: StateId, trigger: usize) -> u8 {
        if from == to {
            return 0;
        }
        let into = &mut self.into[to.index()];
        let edge = (from, trigger_id(trigger));
        let index = into.iter().position(|known| *known == edge).unwrap_or_else(|| {
            into.push(edge);
            into.len() - 1
        });
        if index == WAYS_INTO_STATE_MAX {
            let name = self.draft.tree.state_name(to);
            let message = format!(
                "too many ways lead to state \"{name}\": the limit ways_into_state is \
                 {WAYS_INTO_STATE_MAX}"
            );
            let error = ChartError::new("transitions", message);
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        }
        tiny(index.min(WAYS_INTO_STATE_MAX - 1) + 1)
    }
}

/// What a guard is, if it is one of the frequent ones.
fn quick(guard: Option<&Guard>, first_draw: u32) -> Quick {
    let Some(guard) = guard else { return Quick::Always };
    let GuardBody::Simple(comparisons, _) = &guard.body else { return Quick::Guard };
    let [comparison] = &**comparisons else { return Quick::Guard };
    let Some((side, operator, number)) = comparison.with_number() else { return Quick::Guard };
    match side {
        Operand::Field(field) => Quick::Field(*field, operator, number),
        Operand::Draw(draw) => Quick::Draw(first_draw + u32::from(*draw), operator, number),
        Operand::Number(_)
        | Operand::Bool(_)
        | Operand::Text(_)
        | Operand::Context(_)
        | Operand::World(_) => Quick::Guard,
    }
}

fn tree(draft: &Draft) -> Box<[StateNode]> {
    let nodes = draft.tree.nodes.iter().map(|node| StateNode {
        name: node.source.name.clone(),
        parent: node.parent,
        children: node.children.clone(),
        initial: node.initial,
        history: node.source.history,
        entry: node.source.entry.clone(),
        exit: node.source.exit.clone(),
        state: node.state,
    });
    nodes.collect()
}

fn transition(draft: &Draft, checked: &Checked) -> Transition {
    let guard = checked.guard.map(|guard| draft.guards[usize::from(guard)].text.clone());
    let actions = checked.effects.iter();
    let fields = &draft.vocabulary.fields;
    Transition {
        place: checked.place.clone(),
        trigger: trigger_id(checked.trigger),
        sources: checked.sources.clone(),
        from_any: checked.from_any,
        target: checked.target,
        guard,
        actions: actions.map(|effect| draft.effects[usize::from(*effect)].text.clone()).collect(),
        oracle: checked.oracle,
        threshold: checked.threshold.map(|threshold| match threshold {
            Threshold::Ticks(ticks) => ticks.to_string(),
            Threshold::Field(field) => format!("agent.{}", fields[field.index()].name),
        }),
    }
}

fn thresholds(draft: &Draft) -> Box<[Option<Threshold>]> {
    let timeout = draft.triggers.iter().position(|trigger| trigger == TIMEOUT);
    let threshold = |state: StateId| {
        let first = draft.candidates(state, timeout?).into_iter().next()?;
        draft.checked[first.transition].threshold
    };
    draft.tree.states().map(threshold).collect()
}

/// A history begins with the state inside that is entered first.
fn memories(draft: &Draft) -> Box<[u8]> {
    let nodes = draft.tree.nodes.iter().filter(|node| node.memory.is_some());
    let initial = nodes.map(|node| {
        let first = node.children.iter().position(|child| Some(*child) == node.initial);
        tiny(first.unwrap_or(0))
    });
    initial.collect()
}

fn trigger_id(index: usize) -> TriggerId {
    TriggerId(tiny(index))
}

/// The checks made sure that there are few enough.
fn tiny(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn small(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
