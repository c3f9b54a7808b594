//! Agent by agent: the path that every chart can go.

use std::sync::Arc;

use polity_statechart::{
    Chart, ContextId, Fault, FieldId, Request, RowId, Scalar, Scope, Site, Stage, StateId, Step,
    Threshold, Tree, TriggerId, Value, WorldChange, WorldId,
};

use super::block::{ACTING, Block};
use super::outbox::{Asked, Failed};
use super::philox::{DRAWS_PER_BLOCK, Draws, Philox, Purpose, unit};
use super::rates::Rates;
use super::{LANES, Setting};

/// How many counters of a group of agents are drawn at once. A chart with more draws for one state
/// and trigger gets the rest one by one.
const BLOCKS_AHEAD: usize = 2;

/// One agent that something happens to.
pub(super) struct Agent<'a> {
    pub(super) block: &'a mut Block,
    pub(super) index: usize,
    pub(super) first_slot: u32,
    pub(super) tick: u32,
    pub(super) purpose: Purpose,
    pub(super) philox: Philox,
    pub(super) world: &'a [Option<Value>],
    /// The first draws, if they were made for a group.
    pub(super) ahead: &'a [Draws],
    pub(super) lane: usize,
}

impl Scope for Agent<'_> {
    #[inline]
    fn field(&self, field: FieldId) -> Option<Scalar<'_>> {
        self.block.fields[field.index()].get(self.index)
    }

    fn context(&self, _: ContextId) -> Option<Scalar<'_>> {
        None
    }

    fn world(&self, world: WorldId) -> Option<Scalar<'_>> {
        self.world[world.index()].as_ref().map(Value::as_scalar)
    }

    #[inline]
    fn draw(&self, index: u32) -> Option<f64> {
        let (block, word) = (index as usize / DRAWS_PER_BLOCK, index as usize % DRAWS_PER_BLOCK);
        let draw = match self.ahead.get(block) {
            Some(draws) => draws[word][self.lane],
            None => self.philox.draw(self.block.keys[self.index], self.tick, self.purpose, index),
        };
        Some(unit(draw))
    }
}

impl Agent<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "an index within a block")]
    fn slot(&self) -> u32 {
        self.first_slot + self.index as u32
    }
}

impl Stage for Agent<'_> {
    fn set_field(&mut self, field: FieldId, value: Value) {
        self.block.fields[field.index()].set(self.index, Some(value));
    }

    fn change_world(&mut self, change: WorldChange) {
        let slot = self.slot();
        self.block.outbox.changes.push((slot, change));
    }

    fn request(&mut self, request: &Request) {
        let asked = Asked { tick: self.tick, slot: self.slot(), request: request.clone() };
        self.block.outbox.requests.push(asked);
    }

    fn failed(&mut self, site: Site, fault: Fault) {
        let serial = self.block.serials[self.index];
        let failed = Failed { count: 1, tick: self.tick, slot: self.slot(), serial };
        self.block.outbox.fail(site, fault, failed);
    }

    fn recall(&self, memory: u8) -> u8 {
        self.block.memories[usize::from(memory)][self.index]
    }

    fn remember(&mut self, memory: u8, child: u8) {
        self.block.memories[usize::from(memory)][self.index] = child;
    }
}

/// What a state and trigger need to know at every tick, looked up once.
#[derive(Debug)]
pub(super) struct Single {
    chart: Arc<Chart>,
    /// The state of each number.
    states: Vec<StateId>,
    thresholds: Vec<Option<Threshold>>,
}

impl Single {
    pub(super) fn new(chart: &Arc<Chart>) -> Self {
        let states: Vec<StateId> = chart.states().collect();
        let thresholds = states.iter().map(|state| chart.threshold(*state)).collect();
        Self { chart: Arc::clone(chart), states, thresholds }
    }

    pub(super) fn state(&self, number: u8) -> StateId {
        self.states[usize::from(number)]
    }

    /// One tick of a block, which writes a column.
    pub(super) fn tick(
        &self,
        block: &mut Block,
        setting: &Setting<'_>,
        first_slot: u32,
        tick: u32,
    ) {
        let mut codes = [0; super::BLOCK];
        let mut draws = Ahead::default();
        for base in (0..block.length).step_by(LANES) {
            draws.fill(block, base, setting, tick);
            for lane in 0..LANES.min(block.length - base) {
                let index = base + lane;
                if block.status[index] == ACTING {
                    codes[index] =
                        self.act(block, index, setting, (first_slot, tick), &draws, lane);
                }
            }
        }
        block.history.push().copy_from_slice(&codes);
    }

    #[inline]
    fn act(
        &self,
        block: &mut Block,
        index: usize,
        setting: &Setting<'_>,
        (first_slot, tick): (u32, u32),
        draws: &Ahead,
        lane: usize,
    ) -> u8 {
        let state = self.state(block.states[index]);
        block.held[index] = block.held[index].saturating_add(1);
        let Some(trigger) = self.trigger(block, index, state, setting.rates, draws, lane) else {
            return 0;
        };
        let mut agent = Agent {
            block,
            index,
            first_slot,
            tick,
            purpose: setting.purpose,
            philox: setting.philox,
            world: setting.world,
            ahead: &draws.guards,
            lane,
        };
        let step = self.chart.fire(state, trigger, &mut agent);
        arrive(block, index, step)
    }

    /// The timeout if it is due, else the trigger that is drawn.
    #[inline]
    fn trigger(
        &self,
        block: &Block,
        index: usize,
        state: StateId,
        rates: &Rates,
        draws: &Ahead,
        lane: usize,
    ) -> Option<TriggerId> {
        let threshold = match self.thresholds[state.index()] {
            None => None,
            Some(Threshold::Ticks(ticks)) => Some(ticks),
            Some(Threshold::Field(field)) => match block.fields[field.index()].get(index) {
                Some(Scalar::Number(ticks)) => Some(ticks),
                Some(Scalar::Bool(_) | Scalar::Text(_)) | None => None,
            },
        };
        if threshold.is_some_and(|threshold| f64::from(block.held[index]) > threshold) {
            return self.chart.timeout();
        }
        let limits = rates.limits(block.behaviours[index], state);
        if Rates::certain(limits) {
            return limits.first().map(|limit| limit.trigger);
        }
        let draw = u64::from(draws.trigger[0][lane]);
        limits.iter().find(|limit| draw < limit.below).map(|limit| limit.trigger)
    }

    /// Fires one trigger for every agent that acts, and writes a column.
    pub(super) fn fire_all(
        &self,
        block: &mut Block,
        setting: &Setting<'_>,
        first_slot: u32,
        tick: u32,
        trigger: TriggerId,
    ) {
        let mut codes = [0; super::BLOCK];
        for (index, code) in codes.iter_mut().enumerate().take(block.length) {
            if block.status[index] != ACTING {
                continue;
            }
            let state = self.state(block.states[index]);
            let mut agent = Agent {
                block,
                index,
                first_slot,
                tick,
                purpose: setting.purpose,
                philox: setting.philox,
                world: setting.world,
                ahead: &[],
                lane: 0,
            };
            let step = self.chart.fire(state, trigger, &mut agent);
            *code = arrive(block, index, step);
        }
        block.history.push().copy_from_slice(&codes);
    }

    /// Whether a candidate's guard holds for an agent.
    pub(super) fn guard_holds(&self, row: RowId, agent: &mut Agent<'_>) -> bool {
        self.chart.guard_holds(row, agent)
    }

    /// A candidate's guard, if it can be evaluated for many.
    pub(super) fn guard_tree(&self, row: RowId) -> Option<Tree<'_>> {
        self.chart.guard_tree(row)
    }

    /// Fires a trigger for an agent.
    pub(super) fn fire(
        &self,
        state: u8,
        trigger: TriggerId,
        agent: &mut Agent<'_>,
    ) -> Option<Step> {
        self.chart.fire(self.state(state), trigger, agent)
    }

    /// Performs what happens on a way that was chosen already.
    pub(super) fn perform(&self, row: RowId, agent: &mut Agent<'_>) {
        self.chart.take(row, agent);
    }
}

#[inline]
fn arrive(block: &mut Block, index: usize, step: Option<Step>) -> u8 {
    match step {
        Some(Step { to, code }) if code != 0 => {
            block.arrive(index, to);
            code
        }
        Some(_) | None => 0,
    }
}

/// The draws of a group of agents, made together because that is cheaper.
struct Ahead {
    trigger: Draws,
    guards: Vec<Draws>,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { trigger: [[0; LANES]; DRAWS_PER_BLOCK], guards: Vec::new() }
    }
}

impl Ahead {
    fn fill(&mut self, block: &Block, base: usize, setting: &Setting<'_>, tick: u32) {
        let Some(keys) = block.keys[base..].first_chunk::<LANES>() else { return };
        let guards = setting.blocks.min(BLOCKS_AHEAD);
        self.guards.resize(guards, [[0; LANES]; DRAWS_PER_BLOCK]);
        let trigger = setting.draws_triggers.then_some(&mut self.trigger);
        super::many::fill(setting.philox, keys, (tick, setting.purpose), trigger, &mut self.guards);
    }
}
