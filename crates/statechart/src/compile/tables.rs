//! Builds the tables of a chart.

use super::transitions::CheckedTransition;
use super::{ChartDraft, HISTORY_DEPTH_DEFAULT, TRANSITION_PATHS_MAX};
use crate::chart::StateChange;
use crate::chart::{
    ARRIVALS_PER_STATE_MAX, CandidateRow, Chart, EntryRule, EntryRuleId, FastGuard, PathId,
    StateNode, TIMEOUT, TimeoutThreshold, Transition, TransitionPath,
};
use crate::chart::{Guard, GuardBody};
use crate::error::ChartError;
use crate::expression::ExprOperand;
use crate::ids::{StateId, TriggerId};
use crate::source::ChartSource;

/// Builds the tables of a chart without errors.
pub(super) fn build(
    draft: ChartDraft,
    source: &ChartSource,
    initial: StateId,
    oracle_default: Option<usize>,
) -> Result<Chart, Vec<ChartError>> {
    let mut tables = TableBuilder::new(&draft);
    let states: Vec<StateId> = draft.tree.states().collect();
    for state in states {
        for trigger in 0..draft.triggers.len() {
            tables.candidate_range(state, trigger, oracle_default);
            if tables.paths.len() > TRANSITION_PATHS_MAX {
                let message = format!(
                    "there are too many transition paths: the limit transition_paths is {TRANSITION_PATHS_MAX}, and \
                     each transition has one from each of its sources to each state that a history \
                     may lead to"
                );
                return Err(vec![ChartError::new("transitions", message)]);
            }
        }
    }
    tables.candidate_starts.push(to_u32(tables.candidates.len()));
    let exits = draft.tree.leaves.iter().map(|leaf| tables.exit(*leaf)).collect();
    if !tables.errors.is_empty() {
        return Err(tables.errors);
    }
    let TableBuilder {
        candidates,
        candidate_starts,
        entries,
        paths,
        action_lists,
        history_updates,
        arrivals,
        draws,
        ..
    } = tables;
    let default = oracle_default.and_then(|node| draft.tree.initial_leaf(node));
    let timeout = draft.triggers.iter().position(|name| name == crate::chart::TIMEOUT);
    Ok(Chart {
        name: source.name.clone(),
        states: draft.tree.leaves.iter().map(|leaf| to_u16(*leaf)).collect(),
        tree: tree(&draft),
        initial,
        timeout: timeout.map(trigger_id),
        transitions: draft.checked.iter().map(|checked| transition(&draft, checked)).collect(),
        thresholds: thresholds(&draft),
        history_defaults: history_defaults(&draft),
        triggers: draft.triggers.into(),
        fields: draft.names.fields.into(),
        world_values: draft.names.world_values.into(),
        context_names: draft.names.context_names.into(),
        candidate_starts: candidate_starts.into(),
        candidates: candidates.into(),
        entries: entries.into(),
        paths: paths.into(),
        effects: draft.effects.into(),
        action_lists: action_lists.into(),
        exits,
        history_updates: history_updates.into(),
        guards: draft.guards.into(),
        arrivals: arrivals.into_iter().map(Into::into).collect(),
        oracle_default: default,
        depth: source.max_history_depth.unwrap_or(HISTORY_DEPTH_DEFAULT),
        draws,
    })
}

struct TableBuilder<'d> {
    draft: &'d ChartDraft,
    candidate_starts: Vec<u32>,
    candidates: Vec<CandidateRow>,
    entries: Vec<EntryRule>,
    paths: Vec<TransitionPath>,
    action_lists: Vec<u16>,
    history_updates: Vec<(u8, u8)>,
    arrivals: Vec<Vec<(StateId, TriggerId)>>,
    /// The maximum number of draws of a state and trigger.
    draws: u32,
    errors: Vec<ChartError>,
}

impl<'d> TableBuilder<'d> {
    fn new(draft: &'d ChartDraft) -> Self {
        Self {
            draft,
            candidate_starts: Vec::new(),
            candidates: Vec::new(),
            entries: Vec::new(),
            paths: Vec::new(),
            action_lists: Vec::new(),
            history_updates: Vec::new(),
            arrivals: vec![Vec::new(); draft.tree.leaves.len()],
            draws: 0,
            errors: Vec::new(),
        }
    }

    fn candidate_range(&mut self, state: StateId, trigger: usize, oracle_default: Option<usize>) {
        let draft = self.draft;
        self.candidate_starts.push(to_u32(self.candidates.len()));
        let candidates = draft.candidates(state, trigger);
        let draws = |transition: usize| {
            let guard = draft.checked[transition].guard;
            guard.map_or(0, |guard| draft.guards[usize::from(guard)].draws())
        };
        let first_path = self.paths.len();
        let action_draw = candidates.iter().map(|one| draws(one.transition)).sum();
        let mut first_draw = 0;
        for candidate in &candidates {
            let checked = &draft.checked[candidate.transition];
            let landing = draft.tree.resolve_entry(checked.target);
            let entry = self.entry(state, landing, checked.trigger, &checked.effects);
            self.candidates.push(CandidateRow {
                fast_guard: fast_guard(
                    checked.guard.map(|guard| &draft.guards[usize::from(guard)]),
                    first_draw,
                ),
                plain_change: self.plain_change(entry),
                guard: checked.guard,
                oracle: checked.oracle,
                is_default: oracle_default.map(|node| draft.tree.resolve_entry(node))
                    == Some(landing),
                entry,
                first_draw,
                action_draw,
                transition: to_u16(candidate.transition),
            });
            first_draw += draws(candidate.transition);
        }
        let paths = self.paths[first_path..].iter().map(|path| self.path_draws(path));
        self.draws = self.draws.max(action_draw + paths.max().unwrap_or(0));
    }

    /// Returns the number of draws of a path's actions.
    fn path_draws(&self, path: &TransitionPath) -> u32 {
        let (begin, end) = path.effects;
        let effects = self.action_lists[begin as usize..end as usize].iter();
        effects.map(|effect| self.draft.effects[usize::from(*effect)].draws()).sum()
    }

    /// Returns the entry rule from a state to a [resolved](super::states::StateTree::resolve_entry)
    /// target.
    fn entry(
        &mut self,
        from: StateId,
        landing: usize,
        trigger: usize,
        effects: &[u16],
    ) -> EntryRule {
        let draft = self.draft;
        let node = &draft.tree.nodes[landing];
        let Some(history_state) = node.history_state else {
            return EntryRule::Path(self.path(from, landing, trigger, effects));
        };
        let inside = node.children.iter().map(|child| draft.tree.resolve_entry(*child));
        // Nested rules are added first, so that those of the children are adjacent.
        let inside: Vec<EntryRule> =
            inside.map(|landing| self.entry(from, landing, trigger, effects)).collect();
        let first = EntryRuleId(to_u32(self.entries.len()));
        self.entries.extend(inside);
        EntryRule::History { history_state, first }
    }

    /// Returns the state change of a path without actions and history updates.
    fn plain_change(&self, entry: EntryRule) -> Option<StateChange> {
        let EntryRule::Path(path) = entry else { return None };
        let TransitionPath { to, code, effects, history_updates } = self.paths[path.0 as usize];
        let is_plain = effects.0 == effects.1 && history_updates.0 == history_updates.1;
        is_plain.then_some(StateChange { to, code })
    }

    /// Adds a path from one state to another, with exit, transition and entry actions.
    fn path(&mut self, from: StateId, target: usize, trigger: usize, effects: &[u16]) -> PathId {
        let tree = &self.draft.tree;
        let source = tree.leaves[from.index()];
        // A resolved target is a leaf state or has a history.
        let to = tree.nodes[target].state.unwrap_or(from);
        let (first_effect, first_remembered) =
            (self.action_lists.len(), self.history_updates.len());
        for left in tree.ancestors(source).filter(|left| !tree.is_inside(target, *left)) {
            self.action_lists.extend(&tree.nodes[left].exit);
            if let Some(history_state) = tree.nodes[left].history_state {
                let inside = |child: &usize| tree.is_inside(source, *child);
                let child = tree.nodes[left].children.iter().position(inside);
                self.history_updates.extend(child.map(|child| (history_state, to_u8(child))));
            }
        }
        self.action_lists.extend(effects);
        let mut entered: Vec<usize> =
            tree.ancestors(target).filter(|entered| !tree.is_inside(source, *entered)).collect();
        entered.reverse();
        for node in entered {
            self.action_lists.extend(&tree.nodes[node].entry);
        }
        let code = self.code(from, to, trigger);
        let path = PathId(to_u32(self.paths.len()));
        self.paths.push(TransitionPath {
            to,
            code,
            effects: (to_u32(first_effect), to_u32(self.action_lists.len())),
            history_updates: (to_u32(first_remembered), to_u32(self.history_updates.len())),
        });
        path
    }

    /// Adds the exit actions of a leaf state and its ancestors, innermost first.
    fn exit(&mut self, leaf: usize) -> (u32, u32) {
        let tree = &self.draft.tree;
        let first = self.action_lists.len();
        for left in tree.ancestors(leaf) {
            self.action_lists.extend(&tree.nodes[left].exit);
        }
        (to_u32(first), to_u32(self.action_lists.len()))
    }

    fn code(&mut self, from: StateId, to: StateId, trigger: usize) -> u8 {
        if from == to {
            return 0;
        }
        let arrivals = &mut self.arrivals[to.index()];
        let edge = (from, trigger_id(trigger));
        let index = arrivals.iter().position(|known| *known == edge).unwrap_or_else(|| {
            arrivals.push(edge);
            arrivals.len() - 1
        });
        if index == ARRIVALS_PER_STATE_MAX {
            let name = self.draft.tree.state_name(to);
            let message = format!(
                "too many transitions lead to state \"{name}\": the limit transitions_into_state is \
                 {ARRIVALS_PER_STATE_MAX}"
            );
            let error = ChartError::new("transitions", message);
            if !self.errors.contains(&error) {
                self.errors.push(error);
            }
        }
        to_u8(index.min(ARRIVALS_PER_STATE_MAX - 1) + 1)
    }
}

/// Returns the fast form of a guard.
fn fast_guard(guard: Option<&Guard>, first_draw: u32) -> FastGuard {
    let Some(guard) = guard else { return FastGuard::Always };
    let GuardBody::Simple(comparisons, _) = &guard.body else { return FastGuard::Other };
    let [comparison] = &**comparisons else { return FastGuard::Other };
    let Some((side, operator, number)) = comparison.with_number() else { return FastGuard::Other };
    match side {
        ExprOperand::Field(field) => FastGuard::Field(*field, operator, number),
        ExprOperand::Draw(draw) => FastGuard::Draw(first_draw + u32::from(*draw), operator, number),
        _ => FastGuard::Other,
    }
}

fn tree(draft: &ChartDraft) -> Box<[StateNode]> {
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

fn transition(draft: &ChartDraft, checked: &CheckedTransition) -> Transition {
    let guard = checked.guard.map(|guard| draft.guards[usize::from(guard)].text.clone());
    let actions = checked.effects.iter();
    let fields = &draft.names.fields;
    Transition {
        location: checked.location.clone(),
        trigger: trigger_id(checked.trigger),
        sources: checked.sources.clone(),
        from_any: checked.from_any,
        target: checked.target,
        guard,
        actions: actions.map(|effect| draft.effects[usize::from(*effect)].text.clone()).collect(),
        oracle: checked.oracle,
        threshold: checked.threshold.map(|threshold| match threshold {
            TimeoutThreshold::Ticks(ticks) => ticks.to_string(),
            TimeoutThreshold::Field(field) => format!("agent.{}", fields[field.index()].name),
        }),
    }
}

fn thresholds(draft: &ChartDraft) -> Box<[Option<TimeoutThreshold>]> {
    let timeout = draft.triggers.iter().position(|trigger| trigger == TIMEOUT);
    let threshold = |state: StateId| {
        let first = draft.candidates(state, timeout?).into_iter().next()?;
        draft.checked[first.transition].threshold
    };
    draft.tree.states().map(threshold).collect()
}

/// A history starts with the initial child.
fn history_defaults(draft: &ChartDraft) -> Box<[u8]> {
    let nodes = draft.tree.nodes.iter().filter(|node| node.history_state.is_some());
    let initial = nodes.map(|node| {
        let first = node.children.iter().position(|child| Some(*child) == node.initial);
        to_u8(first.unwrap_or(0))
    });
    initial.collect()
}

fn trigger_id(index: usize) -> TriggerId {
    TriggerId(to_u8(index))
}

/// The checks guarantee that the index fits.
fn to_u8(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}

fn to_u16(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}

fn to_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
