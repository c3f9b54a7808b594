//! The population in columns, and its ticks.
//!
//! A [`Kernel`] holds the agents of one simulation: for each its state, the ticks in that state,
//! its fields and its last transitions. It knows agents by [`Slot`], which is their order, and by
//! [`AgentSerial`], which is theirs for ever; names, turns and rules about who may be added are not
//! its business.
//!
//! ```text
//! let mut kernel = Kernel::new(chart, rates, Seed(42));
//! let slot = kernel.add(AgentSerial(0), DrawKey(7), BehaviourId(0), chart.initial(), &[(field, value)])?;
//! kernel.tick(1, &pool);                  // one tick
//! kernel.ticks(2, 10, &pool);             // ten ticks, the same as ten times one
//! kernel.fire_all(round_ends, 11, &pool); // one trigger for everyone, guards and actions as ever
//! kernel.pause(slot); kernel.resume(slot); kernel.remove(slot);
//! kernel.state(slot); kernel.ticks_in_state(slot); kernel.field(slot, field); kernel.history(slot);
//! kernel.count_visits(); kernel.take_visits();
//! kernel.counts(); kernel.take_warnings(); kernel.take_requests();
//! kernel.world(id); kernel.set_world(id, value);
//! let image = kernel.image(slot);         // one agent, whole, for a checkpoint
//! other.resume_at(tick); other.restore(image)?;
//! let moved = kernel.compact();           // closes the gaps that removed agents left
//! ```
//!
//! In a tick every agent that acts takes its timeout if that is due, or else draws a trigger by the
//! [`Rates`] of its behaviour and fires it. That is at most one transition. Agents see the world as
//! it was when the tick began; what they do to it takes effect in their order.
//!
//! Random numbers are a pure function of seed, [`DrawKey`], tick and purpose. So the same agents have the
//! same fate with one thread or many, whoever else is there, and in whatever pieces ticks are run.
//!
//! There are two paths through a tick with the same result: all agents of a group at once (`many`), by
//! a `plan` that is made of a chart with simple guards, and lists of agents to whom the same happens
//! (`lists`), for all other charts.

mod acts;
mod block;
mod candidates;
mod cases;
mod doubts;
mod drawn;
mod fields;
mod happenings;
mod history;
mod image;
mod lists;
mod many;
mod masks;
mod moves;
mod outbox;
mod pace;
mod philox;
mod plan;
mod pool;
mod population;
mod rates;
mod sight;
mod single;
mod sorter;
mod sums;
mod tree;
mod visits;
mod world;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_statechart::{
    AgentRequest, Chart, ErrorSite, EvalError, ScalarValue, StateId, TriggerId, WorldId,
};
use rayon::ThreadPool;
use rayon::prelude::*;

use self::block::Block;
use self::happenings::Happenings;
use self::history::Calendar;
use self::lists::Desk;
use self::outbox::{Asked, Failed};
use self::pace::Pace;
use self::philox::{Philox, Purpose};
use self::plan::Plan;
use self::visits::Visits;
use self::world::LeftOut;

pub use self::image::AgentImage;
pub use self::philox::{DrawKey, Seed};
pub use self::population::{AgentSerial, KernelError, Slot};
pub use self::rates::{BEHAVIOURS_MAX, Behaviour, BehaviourId, Rate, Rates, RatesError};

/// How many agents stand together. Threads share work by the block; in larger ones, more agents are in
/// each list of those to whom the same happens.
#[cfg(not(test))]
const BLOCK: usize = 8192;

/// Tests have several blocks, and some that are partly filled, with few agents.
#[cfg(test)]
const BLOCK: usize = 512;

/// How many agents are looked at together.
const LANES: usize = 256;

/// A guard or action that could not be evaluated, for however many agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The guard or action, as written.
    pub text: String,
    /// The transition that it belongs to, such as `transitions[3]`, if it is one's.
    pub place: Option<String>,
    /// Why it has no value.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The first agent.
    pub serial: AgentSerial,
    /// The first tick.
    pub tick: u32,
}

/// What the agents of a simulation are and do.
#[derive(Debug)]
pub struct Kernel {
    chart: Arc<Chart>,
    rates: Rates,
    philox: Philox,
    ticking: Course,
    /// The same for triggers that were fired for everyone.
    fired: BTreeMap<TriggerId, Course>,
    /// The state of each number.
    states: Vec<StateId>,
    desks: Desks,
    world: Vec<Option<ScalarValue>>,
    blocks: Vec<Block>,
    live: usize,
    calendar: Calendar,
    pace: Pace,
    requests: Vec<Asked>,
    failures: BTreeMap<(ErrorSite, EvalError), Failed>,
    /// How visits are counted, if they are.
    counting: Option<Visits>,
    visits: Vec<u64>,
}

/// How agents are taken through ticks.
#[derive(Debug)]
struct Course {
    /// All at once, if that is possible.
    plan: Option<Plan>,
    /// In lists.
    happenings: Happenings,
    purpose: Purpose,
}

/// Room to work in, for each thread.
#[derive(Debug, Default)]
struct Desks(Vec<Mutex<Desk>>);

/// What is the same for all agents in a tick.
struct Setting<'a> {
    philox: Philox,
    world: &'a [Option<ScalarValue>],
    purpose: Purpose,
}

impl Kernel {
    /// A population without agents.
    pub fn new(chart: Arc<Chart>, rates: Rates, seed: Seed) -> Self {
        Self {
            ticking: Course {
                plan: Plan::new(&chart, &rates),
                happenings: Happenings::new(&chart, &rates),
                purpose: Purpose::Guard,
            },
            fired: BTreeMap::new(),
            states: chart.states().collect(),
            desks: Desks::default(),
            philox: Philox::new(seed),
            world: chart.world_values().iter().map(|world| world.default.clone()).collect(),
            blocks: Vec::new(),
            live: 0,
            calendar: Calendar::new(chart.max_history_depth(), chart.max_arrival_code()),
            pace: Pace::new(&chart),
            requests: Vec::new(),
            failures: BTreeMap::new(),
            counting: None,
            visits: vec![0; chart.states().len()],
            rates,
            chart,
        }
    }

    /// The chart.
    pub fn chart(&self) -> &Arc<Chart> {
        &self.chart
    }

    /// Counts from now on how often each state is entered.
    pub fn count_visits(&mut self) {
        self.counting = Some(Visits::new(&self.chart));
    }

    /// How often each state was entered since this was last asked, in the order of the chart.
    pub fn take_visits(&mut self) -> Vec<u64> {
        let none = vec![0; self.visits.len()];
        std::mem::replace(&mut self.visits, none)
    }

    /// One tick. Ticks must grow from call to call.
    pub fn tick(&mut self, tick: u32, pool: &ThreadPool) {
        self.ticks(tick, 1, pool);
    }

    /// Several ticks, from `first` on. The same as one at a time, but faster.
    pub fn ticks(&mut self, first: u32, count: u32, pool: &ThreadPool) {
        let mut open = first..first.saturating_add(count);
        while !open.is_empty() {
            self.make_room(pool);
            let most = self.calendar.room().min(self.pace.ticks());
            let ticks: Vec<u32> = open.by_ref().take(most).collect();
            let changes = self.run(None, &ticks, pool);
            self.pace.went(ticks.len(), changes, self.live);
        }
    }

    /// Fires a trigger for every agent that acts. It counts as a tick of its own for the draws of
    /// guards and actions, and no ticks in a state are counted.
    pub fn fire_all(&mut self, trigger: TriggerId, tick: u32, pool: &ThreadPool) {
        self.make_room(pool);
        self.run(Some(trigger), &[tick], pool);
    }

    /// Runs some ticks, or what firing a trigger for everyone comes to. Says how many changes of the
    /// world agents made in them.
    fn run(&mut self, fired: Option<TriggerId>, ticks: &[u32], pool: &ThreadPool) -> usize {
        let chart = &self.chart;
        let course = match fired {
            None => &self.ticking,
            Some(trigger) => self.fired.entry(trigger).or_insert_with(|| Course {
                plan: Plan::of_trigger(chart, trigger),
                happenings: Happenings::of_trigger(chart, trigger),
                purpose: Purpose::Round,
            }),
        };
        let Course { plan, happenings, purpose } = course;
        let setting = Setting { philox: self.philox, world: &self.world, purpose: *purpose };
        let counting = self.counting.as_ref();
        self.desks.prepare(pool);
        let desks = &self.desks;
        each_block(&mut self.blocks, pool, |first_slot, block| {
            let desk = &mut *desks.mine();
            match plan {
                Some(plan) => many::ticks(plan, chart, block, &setting, first_slot, ticks, desk),
                None => lists::ticks(happenings, chart, block, &setting, first_slot, ticks, desk),
            }
            if let Some(counting) = counting {
                counting.count(block, ticks.len());
            }
        });
        self.calendar.ticks.extend(ticks);
        self.collect(ticks.len())
    }

    /// Folds the history where there is no room for another column.
    fn make_room(&mut self, pool: &ThreadPool) {
        if self.calendar.room() > 0 {
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

    /// Puts what agents did to others in the newest columns in order, and the world in its new state.
    /// Says how many changes that took.
    fn collect(&mut self, columns: usize) -> usize {
        let all = self.calendar.ticks.len();
        let applied = world::apply(&mut self.blocks, all - columns..all, &mut self.world);
        for left_out in applied.left_out {
            self.leave_out(&left_out);
        }
        let first_request = self.requests.len();
        for block in &mut self.blocks {
            self.requests.append(&mut block.outbox.requests);
            for (all, some) in self.visits.iter_mut().zip(&mut block.outbox.visits) {
                *all += std::mem::take(some);
            }
            for (what, failed) in std::mem::take(&mut block.outbox.failures) {
                self.failures.entry(what).and_modify(|known| known.merge(failed)).or_insert(failed);
            }
        }
        self.requests[first_request..].sort_by_key(|asked| (asked.tick, asked.slot));
        applied.count
    }

    /// Takes note of additions to the world that are left out.
    fn leave_out(&mut self, left_out: &LeftOut) {
        let LeftOut { value, block, lane, column, count } = *left_out;
        let Some(world) = self.chart.world(&self.chart.world_values()[value].name) else { return };
        let block = &mut self.blocks[block];
        let failed = Failed {
            count,
            tick: self.calendar.ticks[column],
            slot: first_slot(left_out.block) + u32::from(lane),
            serial: block.serials[usize::from(lane)],
        };
        block.outbox.fail(ErrorSite::Addition(world), EvalError::Overflow, failed);
    }

    /// The guards and actions that could not be evaluated since this was last asked.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        let failures = std::mem::take(&mut self.failures).into_iter();
        let warnings = failures.map(|((site, fault), failed)| {
            let (text, place) = self.chart.describe_site(site);
            Warning {
                text,
                place: place.map(str::to_owned),
                reason: self.chart.describe_error(&fault),
                count: failed.count,
                serial: AgentSerial(failed.serial),
                tick: failed.tick,
            }
        });
        warnings.collect()
    }

    /// What agents have asked for since this was last asked, by tick and in the order of agents.
    pub fn take_requests(&mut self) -> Vec<(Slot, AgentRequest)> {
        let requests = std::mem::take(&mut self.requests).into_iter();
        requests.map(|asked| (Slot(asked.slot), asked.request)).collect()
    }

    /// A value of the world.
    pub fn world(&self, world: WorldId) -> Option<&ScalarValue> {
        self.world[world.index()].as_ref()
    }

    /// Changes a value of the world.
    pub fn set_world(&mut self, world: WorldId, value: ScalarValue) {
        self.world[world.index()] = Some(value);
    }
}

impl Desks {
    /// There is one for each thread of the pool.
    fn prepare(&mut self, pool: &ThreadPool) {
        let threads = pool.current_num_threads().max(self.0.len());
        self.0.resize_with(threads, Mutex::default);
    }

    /// That of the thread that asks. No other one uses it, so it never waits.
    fn mine(&self) -> MutexGuard<'_, Desk> {
        let thread = rayon::current_thread_index().unwrap_or(0);
        // Whatever was left on it by someone who panicked is not looked at.
        self.0[thread % self.0.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of the first agent of a block.
#[expect(clippy::cast_possible_truncation, reason = "slots have 32 bits")]
fn first_slot(block: usize) -> u32 {
    (block * BLOCK) as u32
}

/// Does something with every block, on the threads of the pool if there are several.
fn each_block(blocks: &mut [Block], pool: &ThreadPool, work: impl Fn(u32, &mut Block) + Sync) {
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
