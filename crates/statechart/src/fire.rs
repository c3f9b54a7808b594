//! Firing: which way an agent goes, and what happens on it.

use std::ops::Range;

use crate::chart::{Chart, Destination, Entry, Quick, Row, RowId, WayId};
use crate::effect::{EffectBody, Request, WorldChange};
use crate::expression::{Fault, Scope};
use crate::ids::{FieldId, StateId, TriggerId, WorldId};
use crate::value::{Scalar, Value};

/// What a trigger leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: no candidate holds.
    Nothing,
    /// This candidate.
    Take(RowId),
    /// One of these candidates; the oracle must say which.
    Ask(Vec<RowId>),
}

/// Where a guard or an action that failed stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The guard of this candidate.
    Guard(RowId),
    /// The action of this number; see [`Chart::site`].
    Action(u16),
    /// Some action that adds to this value of the world.
    Addition(WorldId),
}

/// An agent that something happens to.
pub trait Stage: Scope {
    /// Changes a field of the agent.
    fn set_field(&mut self, field: FieldId, value: Value);
    /// Takes note of a change of the world.
    fn change_world(&mut self, change: WorldChange);
    /// Takes note of a request.
    fn request(&mut self, request: &Request);
    /// Takes note of a guard or action that could not be evaluated.
    fn failed(&mut self, site: Site, fault: Fault);
    /// Which state inside was last left, for a history.
    fn recall(&self, memory: u8) -> u8;
    /// Takes note of the state inside that is left.
    fn remember(&mut self, memory: u8, child: u8);
}

/// Where an agent has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The state that it is in now.
    pub to: StateId,
    /// The code that [`Chart::way_into`] understands; 0 if the state is the same as before.
    pub code: u8,
}

impl Chart {
    /// What a trigger leads to in a state.
    #[inline]
    pub fn decide(&self, state: StateId, trigger: TriggerId, agent: &mut impl Stage) -> Decision {
        self.decide_among(self.group(state, trigger), agent)
    }

    #[inline]
    fn decide_among(&self, rows: Range<usize>, agent: &mut impl Stage) -> Decision {
        let mut asked = Vec::new();
        for index in rows {
            let row = &self.rows[index];
            // Once the oracle is to be asked, only what is left to it can still be chosen.
            if (!asked.is_empty() && !row.oracle) || !self.holds(index, agent) {
                continue;
            }
            if !row.oracle {
                return Decision::Take(row_id(index));
            }
            asked.push(row_id(index));
        }
        match asked.as_slice() {
            [] => Decision::Nothing,
            [only] => Decision::Take(*only),
            [_, _, ..] => Decision::Ask(asked),
        }
    }

    /// Goes the way of a candidate: performs what happens on it and says where it ends.
    #[inline]
    pub fn take(&self, row: RowId, agent: &mut impl Stage) -> Step {
        self.take_row(&self.rows[row.0 as usize], agent)
    }

    #[inline]
    fn take_row(&self, row: &Row, agent: &mut impl Stage) -> Step {
        if let Some(step) = row.plain {
            return step;
        }
        self.enter(row.entry, row.effect_draw, agent)
    }

    /// Goes the way that the states which were left last lead to.
    fn enter(&self, mut entry: Entry, first_draw: u32, agent: &mut impl Stage) -> Step {
        loop {
            match entry {
                Entry::Way(way) => return self.go(way, first_draw, agent),
                Entry::Recall { memory, first } => {
                    entry = self.entry_inside(first, agent.recall(memory));
                }
            }
        }
    }

    /// Goes where an agent goes when the oracle has no usable answer: to the default if that is one of
    /// the choices, and else the way of the first of them. Guards hold for the oracle, too.
    pub fn take_default(&self, choices: &[RowId], agent: &mut impl Stage) -> Option<Step> {
        let default = choices.iter().find(|row| self.is_default(**row));
        default.or(choices.first()).map(|row| self.take(*row, agent))
    }

    /// Decides and goes, with the default where the oracle would have to be asked.
    #[inline]
    pub fn fire(&self, state: StateId, trigger: TriggerId, agent: &mut impl Stage) -> Option<Step> {
        let group = self.group(state, trigger);
        for index in group.clone() {
            let row = &self.rows[index];
            if row.oracle {
                return self.fire_with_oracle(index..group.end, agent);
            }
            if self.holds(index, agent) {
                return Some(self.take_row(row, agent));
            }
        }
        None
    }

    /// Firing where the oracle may have a say, among the candidates that are not yet tried.
    fn fire_with_oracle(&self, open: Range<usize>, agent: &mut impl Stage) -> Option<Step> {
        match self.decide_among(open, agent) {
            Decision::Nothing => None,
            Decision::Take(row) => Some(self.take(row, agent)),
            Decision::Ask(choices) => self.take_default(&choices, agent),
        }
    }

    /// Whether a candidate's guard holds for an agent. One that fails is reported and does not.
    pub fn guard_holds(&self, row: RowId, agent: &mut impl Stage) -> bool {
        self.holds(row.0 as usize, agent)
    }

    /// Whether a candidate's guard holds. One that fails is reported and does not.
    #[inline]
    fn holds(&self, index: usize, agent: &mut impl Stage) -> bool {
        let row = &self.rows[index];
        match row.quick {
            Quick::Always => return true,
            Quick::Field(field, operator, number) => {
                if let Some(Scalar::Number(value)) = agent.field(field) {
                    return operator.holds(value, number);
                }
            }
            Quick::Draw(draw, operator, number) => {
                if let Some(value) = agent.draw(draw) {
                    return operator.holds(value, number);
                }
            }
            Quick::Guard => {}
        }
        self.slow_holds(index, agent)
    }

    fn slow_holds(&self, index: usize, agent: &mut impl Stage) -> bool {
        let row = &self.rows[index];
        let Some(guard) = row.guard else { return true };
        match self.guards[usize::from(guard)].holds(self, agent, row.first_draw) {
            Ok(holds) => holds,
            Err(fault) => {
                agent.failed(Site::Guard(row_id(index)), fault);
                false
            }
        }
    }

    /// The text of a guard or action, and the transition it belongs to, if it is one's.
    pub fn site(&self, site: Site) -> (String, Option<&str>) {
        match site {
            Site::Guard(row) => {
                let transition = self.transition(row);
                (transition.guard.clone().unwrap_or_default(), Some(&transition.place))
            }
            Site::Action(effect) => (self.effects[usize::from(effect)].text.clone(), None),
            Site::Addition(world) => {
                (format!("add world.{}", self.worlds[world.index()].name), None)
            }
        }
    }

    #[inline]
    fn go(&self, way: WayId, first_draw: u32, agent: &mut impl Stage) -> Step {
        for act in self.acts(way, first_draw) {
            self.perform(&act, agent);
        }
        for (memory, child) in self.remembered(way) {
            agent.remember(*memory, *child);
        }
        let Destination { to, code, .. } = self.destination_of(way);
        Step { to, code }
    }

    pub(crate) fn effect(
        &self,
        effect: &EffectBody,
        draw: u32,
        agent: &mut impl Stage,
    ) -> Result<(), Fault> {
        match effect {
            EffectBody::SetField(field, code) => {
                let value = code.evaluate(agent, draw)?.to_value();
                self.check(*field, &value)?;
                agent.set_field(*field, value);
            }
            EffectBody::AddField(field, code) => {
                let more = number("add", code.evaluate(agent, draw)?)?;
                let now = agent.field(*field).ok_or(Fault::NoField(*field))?;
                let sum = Value::Number(number("add", now)? + more);
                self.check(*field, &sum)?;
                agent.set_field(*field, sum);
            }
            EffectBody::SetWorld(world, code) => {
                let value = code.evaluate(agent, draw)?.to_value();
                agent.change_world(WorldChange::Set(*world, value));
            }
            EffectBody::AddWorld(world, code) => {
                let more = number("add", code.evaluate(agent, draw)?)?;
                agent.change_world(WorldChange::Add(*world, more));
            }
            EffectBody::Request(request) => agent.request(request),
        }
        Ok(())
    }

    fn check(&self, field: FieldId, value: &Value) -> Result<(), Fault> {
        self.check_field(field, value).map_err(|_| Fault::OutOfRange(field))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the table was built with 32 bits")]
fn row_id(index: usize) -> RowId {
    RowId(index as u32)
}

fn number(operator: &'static str, scalar: Scalar<'_>) -> Result<f64, Fault> {
    match scalar {
        Scalar::Number(number) => Ok(number),
        other @ (Scalar::Bool(_) | Scalar::Text(_)) => {
            Err(Fault::Mismatch { operator, left: other.kind(), right: None })
        }
    }
}
