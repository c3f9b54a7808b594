//! The interpreter: chooses a candidate and performs its path.

use std::ops::Range;

use crate::action::{ActionBody, AgentRequest, WorldChange};
use crate::chart::{
    CandidateId, CandidateRow, Chart, EntryRule, FastGuard, PathId, TransitionOutcome,
};
use crate::expression::{EvalError, EvalScope};
use crate::ids::{FieldId, StateId, TriggerId, WorldId};
use crate::value::{ScalarRef, ScalarValue};

/// The decision on a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireDecision {
    /// No candidate is eligible.
    Nothing,
    /// Take this candidate.
    Take(CandidateId),
    /// Ask the oracle to choose one of these candidates.
    AskOracle(Vec<CandidateId>),
}

/// The guard or action that failed to evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorSite {
    /// The guard of this candidate.
    Guard(CandidateId),
    /// The action with this index; see [`Chart::describe_site`].
    Action(u16),
    /// Any action that adds to this world value.
    Addition(WorldId),
}

/// Access to one agent while it fires.
pub trait AgentScope: EvalScope {
    /// Sets a field of the agent.
    fn set_field(&mut self, field: FieldId, value: ScalarValue);
    /// Records a change of the world.
    fn change_world(&mut self, change: WorldChange);
    /// Records a request.
    fn request(&mut self, request: &AgentRequest);
    /// Records an evaluation error.
    fn report_error(&mut self, site: ErrorSite, error: EvalError);
    /// Returns the last active child of a history state.
    fn last_active_child(&self, history_state: u8) -> u8;
    /// Records the child of a history state that is left.
    fn set_last_active_child(&mut self, history_state: u8, child: u8);
}

/// The result of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateChange {
    /// The new state.
    pub to: StateId,
    /// The arrival code for [`Chart::decode_arrival`]; 0 if the state did not change.
    pub code: u8,
}

impl Chart {
    /// Decides which candidate a trigger selects, without taking it.
    #[inline]
    pub fn decide(
        &self,
        state: StateId,
        trigger: TriggerId,
        agent: &mut impl AgentScope,
    ) -> FireDecision {
        self.decide_among(self.candidate_range(state, trigger), agent)
    }

    #[inline]
    fn decide_among(&self, candidates: Range<usize>, agent: &mut impl AgentScope) -> FireDecision {
        let mut offered = Vec::new();
        for index in candidates {
            let row = &self.candidates[index];
            // Once the oracle has a choice, only its own candidates remain eligible.
            if (!offered.is_empty() && !row.oracle) || !self.guard_holds_at(index, agent) {
                continue;
            }
            if !row.oracle {
                return FireDecision::Take(candidate_id(index));
            }
            offered.push(candidate_id(index));
        }
        match offered.as_slice() {
            [] => FireDecision::Nothing,
            [only] => FireDecision::Take(*only),
            [_, _, ..] => FireDecision::AskOracle(offered),
        }
    }

    /// Takes a candidate: performs its path and returns the new state.
    #[inline]
    pub fn take(&self, candidate: CandidateId, agent: &mut impl AgentScope) -> StateChange {
        self.take_row(&self.candidates[candidate.0 as usize], agent)
    }

    #[inline]
    fn take_row(&self, row: &CandidateRow, agent: &mut impl AgentScope) -> StateChange {
        if let Some(step) = row.plain_change {
            return step;
        }
        self.run_entry(row.entry, row.action_draw, agent)
    }

    /// Follows entry rules to a path and performs it.
    fn run_entry(
        &self,
        mut entry: EntryRule,
        first_draw: u32,
        agent: &mut impl AgentScope,
    ) -> StateChange {
        loop {
            match entry {
                EntryRule::Path(path) => return self.run_path(path, first_draw, agent),
                EntryRule::History { history_state, first } => {
                    entry = self.entry_for_child(first, agent.last_active_child(history_state));
                }
            }
        }
    }

    /// Takes the default choice: the candidate that leads to `oracle_default`, or else the first
    /// one. Only eligible candidates are choices.
    pub fn take_default(
        &self,
        choices: &[CandidateId],
        agent: &mut impl AgentScope,
    ) -> Option<StateChange> {
        let default = choices.iter().find(|candidate| self.is_default(**candidate));
        default.or(choices.first()).map(|candidate| self.take(*candidate, agent))
    }

    /// Decides and takes the candidate. Falls back to the default choice instead of asking the
    /// oracle.
    #[inline]
    pub fn fire(
        &self,
        state: StateId,
        trigger: TriggerId,
        agent: &mut impl AgentScope,
    ) -> Option<StateChange> {
        let candidate_range = self.candidate_range(state, trigger);
        for index in candidate_range.clone() {
            let row = &self.candidates[index];
            if row.oracle {
                return self.fire_with_oracle(index..candidate_range.end, agent);
            }
            if self.guard_holds_at(index, agent) {
                return Some(self.take_row(row, agent));
            }
        }
        None
    }

    /// Fires the remaining candidates, at least one of which belongs to the oracle.
    fn fire_with_oracle(
        &self,
        rest: Range<usize>,
        agent: &mut impl AgentScope,
    ) -> Option<StateChange> {
        match self.decide_among(rest, agent) {
            FireDecision::Nothing => None,
            FireDecision::Take(candidate) => Some(self.take(candidate, agent)),
            FireDecision::AskOracle(choices) => self.take_default(&choices, agent),
        }
    }

    /// True if a candidate's guard holds. A guard that fails is reported and counts as false.
    pub fn guard_holds(&self, candidate: CandidateId, agent: &mut impl AgentScope) -> bool {
        self.guard_holds_at(candidate.0 as usize, agent)
    }

    /// True if a candidate's guard holds. A guard that fails is reported and counts as false.
    #[inline]
    fn guard_holds_at(&self, index: usize, agent: &mut impl AgentScope) -> bool {
        let row = &self.candidates[index];
        match row.fast_guard {
            FastGuard::Always => return true,
            FastGuard::Field(field, operator, number) => {
                if let Some(ScalarRef::Number(value)) = agent.field(field) {
                    return operator.holds(value, number);
                }
            }
            FastGuard::Draw(draw, operator, number) => {
                if let Some(value) = agent.draw(draw) {
                    return operator.holds(value, number);
                }
            }
            FastGuard::Other => {}
        }
        self.evaluate_guard(index, agent)
    }

    fn evaluate_guard(&self, index: usize, agent: &mut impl AgentScope) -> bool {
        let row = &self.candidates[index];
        let Some(guard) = row.guard else { return true };
        match self.guards[usize::from(guard)].holds(self, agent, row.first_draw) {
            Ok(holds) => holds,
            Err(error) => {
                agent.report_error(ErrorSite::Guard(candidate_id(index)), error);
                false
            }
        }
    }

    /// Returns the text of a guard or action, and the location of its transition if it has one.
    pub fn describe_site(&self, site: ErrorSite) -> (String, Option<&str>) {
        match site {
            ErrorSite::Guard(candidate) => {
                let transition = self.transition(candidate);
                (transition.guard.clone().unwrap_or_default(), Some(&transition.location))
            }
            ErrorSite::Action(effect) => (self.effects[usize::from(effect)].text.clone(), None),
            ErrorSite::Addition(world) => {
                (format!("add world.{}", self.world_values[world.index()].name), None)
            }
        }
    }

    #[inline]
    fn run_path(&self, path: PathId, first_draw: u32, agent: &mut impl AgentScope) -> StateChange {
        for action in self.actions(path, first_draw) {
            self.perform(&action, agent);
        }
        for (history_state, child) in self.history_updates(path) {
            agent.set_last_active_child(*history_state, *child);
        }
        let TransitionOutcome { to, code, .. } = self.path_outcome(path);
        StateChange { to, code }
    }

    pub(crate) fn perform_body(
        &self,
        effect: &ActionBody,
        draw: u32,
        agent: &mut impl AgentScope,
    ) -> Result<(), EvalError> {
        match effect {
            ActionBody::SetField(field, code) => {
                let value = code.evaluate(agent, draw)?.to_value();
                self.check(*field, &value)?;
                agent.set_field(*field, value);
            }
            ActionBody::AddField(field, code) => {
                let more = number("add", code.evaluate(agent, draw)?)?;
                let now = agent.field(*field).ok_or(EvalError::NoField(*field))?;
                let sum = ScalarValue::Number(number("add", now)? + more);
                self.check(*field, &sum)?;
                agent.set_field(*field, sum);
            }
            ActionBody::SetWorld(world, code) => {
                let value = code.evaluate(agent, draw)?.to_value();
                agent.change_world(WorldChange::Set(*world, value));
            }
            ActionBody::AddWorld(world, code) => {
                let more = number("add", code.evaluate(agent, draw)?)?;
                agent.change_world(WorldChange::Add(*world, more));
            }
            ActionBody::Request(request) => agent.request(request),
        }
        Ok(())
    }

    fn check(&self, field: FieldId, value: &ScalarValue) -> Result<(), EvalError> {
        self.check_field(field, value).map_err(|_| EvalError::OutOfRange(field))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the table was built with 32 bits")]
fn candidate_id(index: usize) -> CandidateId {
    CandidateId(index as u32)
}

fn number(operator: &'static str, scalar: ScalarRef<'_>) -> Result<f64, EvalError> {
    let mismatch = EvalError::Mismatch { operator, left: scalar.kind(), right: None };
    scalar.as_number().ok_or(mismatch)
}
