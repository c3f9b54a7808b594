//! The simulation kernel: agents in columns, and their ticks.
//!
//! A [`Kernel`] holds the agents of one simulation: state, ticks in the state, fields and last
//! transitions. It knows an agent by its [`AgentSlot`], the position in the order of agents, and
//! its [`AgentSerial`], which never changes. Names, turns and lifecycle rules live outside.
//!
//! ```text
//! let mut kernel = Kernel::new(chart, rates, SimulationSeed(42));
//! let slot = kernel.add(AgentSerial(0), DrawKey(7), BehaviourId(0), chart.initial(), &[(field, value)])?;
//! kernel.ticks(1, 10, &pool);             // ten ticks
//! kernel.fire_all(round_ends, 11, &pool); // one trigger for every active agent
//! let snapshot = kernel.snapshot(slot);   // one agent, for a checkpoint
//! kernel.exit(&[slot], 11);               // exit actions of an agent to be removed
//! kernel.remove(slot);
//! let moved = kernel.compact();           // closes the gaps of removed agents
//! ```
//!
//! # A tick
//!
//! Every active agent takes its timeout if it is due; otherwise it draws a trigger by the
//! [`RateTable`] of its behaviour and fires it. That is at most one transition. Agents read the
//! world as of the start of the tick; their changes apply in agent order. Random draws are a pure
//! function of seed, [`DrawKey`], tick and purpose. So results do not depend on the number of
//! threads, on other agents, or on how many ticks run at once.
//!
//! # Which path a chart takes
//!
//! | path | charts | how it works |
//! |---|---|---|
//! | `tick::simd` | guards are conjunctions of comparisons between fields, draws and constants; no oracle, no history, at most 254 transitions and 62 tests | branch-free vector loops over 256 agents, by a `SimdPlan` |
//! | `tick::batched` | all others | sorts the agents of a block by event, then evaluates guards and actions for lists of agents |
//! | `tick::scalar` | Rust guards; agents whose evaluation failed for different reasons | one agent at a time, within the other paths |
//!
//! All paths give the same result. `TickBatching` decides how many ticks run before world changes
//! apply: one, if agents read world values that actions change.
//!
//! # Modules
//!
//! - `columns`: agent storage, history, snapshots, lists and masks of lanes.
//! - `draws`: the Philox generator, the draw cache, trigger rates.
//! - `effects`: world changes, requests and errors, collected per block.
//! - `expressions`: evaluation for many agents at once.
//! - `tables`: the event table and the SIMD plan, compiled before the first tick.
//! - `tick`: the execution paths.

mod columns;
mod draws;
mod effects;
mod expressions;
mod tables;
mod tick;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_statechart::{
    AgentRequest, Chart, ErrorSite, EvalError, ScalarValue, StateId, TriggerId, WorldId,
};
use rayon::ThreadPool;
use rayon::prelude::*;

use self::columns::block::AgentBlock;
use self::columns::history::HistoryCalendar;
use self::columns::visits::VisitCounter;
use self::draws::philox::{DrawPurpose, PhiloxRng};
use self::effects::block_effects::{ErrorTally, PendingRequest};
use self::effects::world::RejectedAdditions;
use self::tables::event_table::EventTable;
use self::tables::simd_plan::SimdPlan;
use self::tick::batched::TickScratch;
use self::tick::batching::TickBatching;
use self::tick::scalar::ScalarAgent;

pub use self::columns::agents::{AgentSerial, AgentSlot, KernelError};
pub use self::columns::snapshot::AgentSnapshot;
pub use self::draws::philox::{DrawKey, SimulationSeed};
pub use self::draws::rates::{
    BEHAVIOURS_MAX, BehaviourId, BehaviourRates, RateTable, RatesError, TriggerRate,
};

/// The number of agents in a block. Threads share work by block, and larger blocks give longer
/// lists.
#[cfg(not(test))]
const BLOCK: usize = 8192;

/// Small in tests, so that a few agents fill several blocks and one in part.
#[cfg(test)]
const BLOCK: usize = 512;

/// The number of agents in a vector loop.
const LANES: usize = 256;

/// A guard or action that could not be evaluated, for any number of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelWarning {
    /// The guard or action as written.
    pub text: String,
    /// The location of its transition, such as `transitions[3]`, if it has one.
    pub location: Option<String>,
    /// The reason.
    pub reason: String,
    /// The number of times.
    pub count: u64,
    /// The first agent.
    pub serial: AgentSerial,
    /// The first tick.
    pub tick: u32,
}

/// The agents of a simulation and their ticks.
#[derive(Debug)]
pub struct Kernel {
    chart: Arc<Chart>,
    rates: RateTable,
    philox: PhiloxRng,
    ticking: TickProgram,
    /// The programs of triggers fired for every agent.
    fired: BTreeMap<TriggerId, TickProgram>,
    /// The state ids by index.
    states: Vec<StateId>,
    scratch_pool: ScratchPool,
    world: Vec<Option<ScalarValue>>,
    blocks: Vec<AgentBlock>,
    live: usize,
    calendar: HistoryCalendar,
    batching: TickBatching,
    requests: Vec<PendingRequest>,
    failures: BTreeMap<(ErrorSite, EvalError), ErrorTally>,
    /// The visit counter, if visits are counted.
    counting: Option<VisitCounter>,
    visits: Vec<u64>,
}

/// The compiled form of a tick.
#[derive(Debug)]
struct TickProgram {
    /// The plan of the SIMD path, if the chart allows one.
    plan: Option<SimdPlan>,
    /// The table of the batched path.
    event_table: EventTable,
    purpose: DrawPurpose,
}

/// Scratch buffers, one per thread.
#[derive(Debug, Default)]
struct ScratchPool(Vec<Mutex<TickScratch>>);

/// The inputs of a tick that all agents share.
struct TickInput<'a> {
    philox: PhiloxRng,
    world: &'a [Option<ScalarValue>],
    purpose: DrawPurpose,
}

impl Kernel {
    /// Creates a population without agents.
    pub fn new(chart: Arc<Chart>, rates: RateTable, seed: SimulationSeed) -> Self {
        Self {
            ticking: TickProgram {
                plan: SimdPlan::new(&chart, &rates),
                event_table: EventTable::new(&chart, &rates),
                purpose: DrawPurpose::Guard,
            },
            fired: BTreeMap::new(),
            states: chart.states().collect(),
            scratch_pool: ScratchPool::default(),
            philox: PhiloxRng::new(seed),
            world: chart.world_values().iter().map(|world| world.default.clone()).collect(),
            blocks: Vec::new(),
            live: 0,
            calendar: HistoryCalendar::new(chart.max_history_depth(), chart.max_arrival_code()),
            batching: TickBatching::new(&chart),
            requests: Vec::new(),
            failures: BTreeMap::new(),
            counting: None,
            visits: vec![0; chart.states().len()],
            rates,
            chart,
        }
    }

    /// Returns the chart.
    pub fn chart(&self) -> &Arc<Chart> {
        &self.chart
    }

    /// Starts counting the visits of each state.
    pub fn count_visits(&mut self) {
        self.counting = Some(VisitCounter::new(&self.chart));
    }

    /// Takes the visits of each state since the last call, in chart order.
    pub fn take_visits(&mut self) -> Vec<u64> {
        let none = vec![0; self.visits.len()];
        std::mem::replace(&mut self.visits, none)
    }

    /// Runs one tick. Tick numbers must increase from call to call.
    pub fn tick(&mut self, tick: u32, pool: &ThreadPool) {
        self.ticks(tick, 1, pool);
    }

    /// Runs several ticks from `first` on: the same as one at a time, but faster.
    pub fn ticks(&mut self, first: u32, count: u32, pool: &ThreadPool) {
        let mut open = first..first.saturating_add(count);
        while !open.is_empty() {
            self.fold_history_if_full(pool);
            let most = self.calendar.free_columns().min(self.batching.ticks());
            let ticks: Vec<u32> = open.by_ref().take(most).collect();
            let changes = self.run(None, &ticks, pool);
            self.batching.adapt(ticks.len(), changes, self.live);
        }
    }

    /// Fires a trigger for every active agent. It has its own draws and does not count as a tick in
    /// a state.
    pub fn fire_all(&mut self, trigger: TriggerId, tick: u32, pool: &ThreadPool) {
        self.fold_history_if_full(pool);
        self.run(Some(trigger), &[tick], pool);
    }

    /// Runs ticks, or fires a trigger for every agent. Returns the number of world changes.
    fn run(&mut self, fired: Option<TriggerId>, ticks: &[u32], pool: &ThreadPool) -> usize {
        let chart = &self.chart;
        let course = match fired {
            None => &self.ticking,
            Some(trigger) => self.fired.entry(trigger).or_insert_with(|| TickProgram {
                plan: SimdPlan::of_trigger(chart, trigger),
                event_table: EventTable::of_trigger(chart, trigger),
                purpose: DrawPurpose::Round,
            }),
        };
        let TickProgram { plan, event_table, purpose } = course;
        let input = TickInput { philox: self.philox, world: &self.world, purpose: *purpose };
        let counting = self.counting.as_ref();
        self.scratch_pool.prepare(pool);
        let scratch_pool = &self.scratch_pool;
        each_block(&mut self.blocks, pool, |first_slot, block| {
            let scratch = &mut *scratch_pool.mine();
            match plan {
                Some(plan) => {
                    tick::simd::ticks(plan, chart, block, &input, first_slot, ticks, scratch);
                }
                None => tick::batched::ticks(
                    event_table,
                    chart,
                    block,
                    &input,
                    first_slot,
                    ticks,
                    scratch,
                ),
            }
            if let Some(counting) = counting {
                counting.count(block, ticks.len());
            }
        });
        self.calendar.ticks.extend(ticks);
        let columns = self.calendar.ticks.len();
        self.collect(columns - ticks.len()..columns)
    }

    /// Performs the exit actions of agents that are to be removed, as of the end of a tick. They
    /// have their own draws. All agents read the same world; their changes apply in agent order.
    pub fn exit(&mut self, slots: &[AgentSlot], tick: u32) {
        let chart = Arc::clone(&self.chart);
        // The column after the newest orders the changes. It is not written.
        let column = self.calendar.ticks.len();
        for slot in slots {
            if !self.contains(*slot) {
                continue;
            }
            let (state, (block, index)) = (self.state(*slot), slot.block_and_lane());
            let mut agent = ScalarAgent {
                block: &mut self.blocks[block],
                index,
                first_slot: first_slot(block),
                tick,
                column,
                purpose: DrawPurpose::Exit,
                philox: self.philox,
                world: &self.world,
            };
            chart.exit(state, &mut agent);
        }
        self.calendar.ticks.push(tick);
        self.collect(column..column + 1);
        self.calendar.ticks.pop();
    }

    /// Folds the history if there is no room for another column.
    fn fold_history_if_full(&mut self, pool: &ThreadPool) {
        if self.calendar.free_columns() > 0 {
            return;
        }
        let calendar = &self.calendar;
        each_block(&mut self.blocks, pool, |_, block| {
            block.history.fold(block.length, calendar);
        });
        let folded = self.blocks.iter().map(|block| block.history.folded_bytes()).sum();
        self.calendar.advance(self.live, folded);
        self.blocks.iter_mut().for_each(|block| block.history.fit(&self.calendar));
    }

    /// Collects the effects of these columns in order and applies world changes. Returns the
    /// number of changes.
    fn collect(&mut self, columns: Range<usize>) -> usize {
        let applied = effects::world::apply(&mut self.blocks, columns, &mut self.world);
        for rejected in applied.rejected {
            self.report_rejected(&rejected);
        }
        let first_request = self.requests.len();
        for block in &mut self.blocks {
            self.requests.append(&mut block.effects.requests);
            for (all, some) in self.visits.iter_mut().zip(&mut block.effects.visits) {
                *all += std::mem::take(some);
            }
            for (what, tally) in std::mem::take(&mut block.effects.failures) {
                let known = self.failures.entry(what);
                known.and_modify(|known| known.merge(tally)).or_insert(tally);
            }
        }
        self.requests[first_request..].sort_by_key(|requested| (requested.tick, requested.slot));
        applied.count
    }

    /// Records rejected additions to a world value as errors.
    fn report_rejected(&mut self, rejected: &RejectedAdditions) {
        let RejectedAdditions { value, block, lane, column, count } = *rejected;
        let Some(world) = self.chart.world(&self.chart.world_values()[value].name) else { return };
        let block = &mut self.blocks[block];
        let tally = ErrorTally {
            count,
            tick: self.calendar.ticks[column],
            slot: first_slot(rejected.block) + u32::from(lane),
            serial: block.serials[usize::from(lane)],
        };
        block.effects.add_error(ErrorSite::Addition(world), EvalError::Overflow, tally);
    }

    /// Takes the guards and actions that could not be evaluated since the last call.
    pub fn take_warnings(&mut self) -> Vec<KernelWarning> {
        let failures = std::mem::take(&mut self.failures).into_iter();
        let warnings = failures.map(|((site, fault), tally)| {
            let (text, location) = self.chart.describe_site(site);
            KernelWarning {
                text,
                location: location.map(str::to_owned),
                reason: self.chart.describe_error(&fault),
                count: tally.count,
                serial: AgentSerial(tally.serial),
                tick: tally.tick,
            }
        });
        warnings.collect()
    }

    /// Takes the requests of agents since the last call, by tick and agent.
    pub fn take_requests(&mut self) -> Vec<(AgentSlot, AgentRequest)> {
        let requests = std::mem::take(&mut self.requests).into_iter();
        requests.map(|requested| (AgentSlot(requested.slot), requested.request)).collect()
    }

    /// Returns a world value.
    pub fn world(&self, world: WorldId) -> Option<&ScalarValue> {
        self.world[world.index()].as_ref()
    }

    /// Sets a world value.
    pub fn set_world(&mut self, world: WorldId, value: ScalarValue) {
        self.world[world.index()] = Some(value);
    }
}

impl ScratchPool {
    /// Ensures one scratch buffer per thread of the pool.
    fn prepare(&mut self, pool: &ThreadPool) {
        let threads = pool.current_num_threads().max(self.0.len());
        self.0.resize_with(threads, Mutex::default);
    }

    /// Returns the scratch buffer of the current thread. No other thread uses it, so this never
    /// waits.
    fn mine(&self) -> MutexGuard<'_, TickScratch> {
        let thread = rayon::current_thread_index().unwrap_or(0);
        // A panicked thread may have left any content; it is never read.
        self.0[thread % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "slots have 32 bits")]
fn first_slot(block: usize) -> u32 {
    (block * BLOCK) as u32
}

/// Calls `work` for every block, on the threads of the pool if there are several.
fn each_block(
    blocks: &mut [AgentBlock],
    pool: &ThreadPool,
    work: impl Fn(u32, &mut AgentBlock) + Sync,
) {
    if blocks.len() <= 1 || pool.current_num_threads() == 1 {
        let blocks = blocks.iter_mut().enumerate();
        blocks.for_each(|(number, block)| work(first_slot(number), block));
    } else {
        pool.install(|| {
            let blocks = blocks.par_iter_mut().enumerate();
            blocks.for_each(|(number, block)| work(first_slot(number), block));
        });
    }
}
