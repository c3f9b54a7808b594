//! The reference implementation: one [`ChartInstance`] per agent.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_statechart::{
    AgentRequest, Chart, ChartInstance, ErrorSite, EvalError, FireContext, ScalarValue, TriggerId,
    WorldChange, WorldId,
};

use crate::kernel::draws::philox::{DrawPurpose, PhiloxRng, SimulationSeed, unit};
use crate::kernel::draws::rates::RateTable;
use crate::kernel::{AgentSerial, AgentSlot, AgentSnapshot, BehaviourId, DrawKey};

/// The number of errors by text and reason, with the first tick and agent.
pub(super) type ErrorCounts = BTreeMap<(String, String), (u64, u32, AgentSerial)>;

pub(super) struct ReferencePopulation {
    agents: Vec<ChartInstance>,
    rates: RateTable,
    philox: PhiloxRng,
    pub(super) world: Vec<Option<ScalarValue>>,
    pub(super) requests: Vec<(AgentSlot, AgentRequest)>,
    pub(super) failures: ErrorCounts,
}

impl ReferencePopulation {
    pub(super) fn new(
        chart: &Arc<Chart>,
        rates: RateTable,
        seed: SimulationSeed,
        agents: u64,
    ) -> Self {
        Self {
            agents: (0..agents).map(|_| ChartInstance::new(Arc::clone(chart))).collect(),
            rates,
            philox: PhiloxRng::new(seed),
            world: chart.world_values().iter().map(|world| world.default.clone()).collect(),
            requests: Vec::new(),
            failures: BTreeMap::new(),
        }
    }

    pub(super) fn run(&mut self, ticks: u32) {
        (1..=ticks).for_each(|tick| self.tick(tick));
    }

    pub(super) fn tick(&mut self, tick: u32) {
        let (philox, rates) = (self.philox, self.rates.clone());
        self.act_all(tick, DrawPurpose::Guard, |agent, serial, context| {
            if agent.begin_tick(context).is_some() {
                return;
            }
            let (purpose, number) = match agent.chart().max_draws() {
                1..=3 => (DrawPurpose::Guard, 3),
                0 | 4.. => (DrawPurpose::Trigger, 0),
            };
            let draw = u64::from(philox.draw(serial, tick, purpose, number));
            let limits = rates.limits(behaviour(&rates, serial), agent.state());
            if let Some(limit) = limits.iter().find(|limit| draw < limit.below) {
                agent.fire(limit.trigger, context);
            }
        });
    }

    pub(super) fn fire_all(&mut self, trigger: TriggerId, tick: u32) {
        self.act_all(tick, DrawPurpose::Round, |agent, _, context| {
            agent.fire(trigger, context);
        });
    }

    /// Performs the exit actions of all agents.
    pub(super) fn exit(&mut self, tick: u32) {
        self.act_all(tick, DrawPurpose::Exit, |agent, _, context| agent.exit(context));
    }

    fn act_all(
        &mut self,
        tick: u32,
        purpose: DrawPurpose,
        act: impl Fn(&mut ChartInstance, u64, &FireContext),
    ) {
        let mut changes: Vec<(u64, WorldChange)> = Vec::new();
        for (agent, serial) in self.agents.iter_mut().zip(0..) {
            let philox = self.philox;
            let draws = move |index| unit(philox.draw(serial, tick, purpose, index));
            let chart = Arc::clone(agent.chart());
            let mut context = FireContext::new(&chart).with_draws(draws);
            for (world, value) in chart.world_values().iter().zip(&self.world) {
                if let (Some(id), Some(value)) = (chart.world(&world.name), value) {
                    context = context.with_world(id, value.clone());
                }
            }
            act(agent, serial, &context);
            changes.extend(agent.take_changes().into_iter().map(|change| (serial, change)));
            let slot = AgentSlot(u32::try_from(serial).unwrap());
            self.requests
                .extend(agent.take_requests().into_iter().map(|requested| (slot, requested)));
            for failure in agent.take_eval_errors() {
                let text = chart.describe_site(failure.site).0;
                let reason = chart.describe_error(&failure.error);
                let first = (tick, AgentSerial(serial));
                note(&mut self.failures, (text, reason), 1, first);
            }
        }
        for (serial, change) in changes {
            if let Some(world) = apply(&mut self.world, change)
                && let Some(agent) = self.agents.first()
            {
                let chart = agent.chart();
                let text = chart.describe_site(ErrorSite::Addition(world)).0;
                let reason = chart.describe_error(&EvalError::Overflow);
                note(&mut self.failures, (text, reason), 1, (tick, AgentSerial(serial)));
            }
        }
    }

    pub(super) fn snapshots(&self) -> Vec<AgentSnapshot> {
        let agents = self.agents.iter().zip(0..);
        agents
            .map(|(agent, serial)| {
                let chart = agent.chart();
                let fields = chart
                    .fields()
                    .iter()
                    .map(|field| chart.field(&field.name).and_then(|id| agent.field(id).cloned()));
                AgentSnapshot {
                    serial: AgentSerial(serial),
                    key: DrawKey(serial),
                    behaviour: BehaviourId(behaviour(&self.rates, serial)),
                    state: agent.state(),
                    ticks_in_state: agent.ticks_in_state(),
                    paused: false,
                    fields: fields.collect(),
                    last_active: agent.last_active_children().to_vec(),
                    history: agent.history().collect(),
                }
            })
            .collect()
    }
}

/// Counts errors and keeps the first one.
pub(super) fn note(
    failures: &mut ErrorCounts,
    what: (String, String),
    count: u64,
    (tick, serial): (u32, AgentSerial),
) {
    let (all, first_tick, first) = failures.entry(what).or_insert((0, tick, serial));
    *all += count;
    (*first_tick, *first) = (*first_tick, *first).min((tick, serial));
}

pub(super) fn behaviour(rates: &RateTable, serial: u64) -> u8 {
    u8::try_from(serial % rates.behaviours() as u64).unwrap()
}

/// Applies a change. A value that is not a number counts from 0. Returns the world value of a
/// rejected addition.
fn apply(world: &mut [Option<ScalarValue>], change: WorldChange) -> Option<WorldId> {
    match change {
        WorldChange::Set(id, value) => world[id.index()] = Some(value),
        WorldChange::Add(id, more) => {
            let now = match world[id.index()] {
                Some(ScalarValue::Number(number)) => number,
                Some(ScalarValue::Bool(_) | ScalarValue::Text(_)) | None => 0.0,
            };
            let sum = now + more;
            if !sum.is_finite() {
                return Some(id);
            }
            world[id.index()] = Some(ScalarValue::Number(sum));
        }
    }
    None
}
