//! `scenarios/NAME.yaml`: who is simulated, in which world, for how long.
//!
//! [`ScenarioFile`] is the file as it is written, and any tool that reads YAML or JSON can fill it.
//! [`Scenario::new`] holds it against its chart and tells everything that is wrong with it.

mod check;
mod scaling;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use polity_statechart::{Chart, FieldId, ScalarValue, StateId, TriggerId, WorldId};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::check::{Limit, ScenarioError};
pub use self::scaling::ScalingError;
use crate::kernel::{self, BehaviourId, Rates, RatesError};
use crate::lifecycle::{LifecycleAction, Operation};

/// The number of agents that a scenario may have unless it says otherwise.
pub const MAX_AGENTS_DEFAULT: u64 = 25;

/// The number of agents that any scenario may have.
pub const MAX_AGENTS_MAX: u64 = 100_000_000;

/// The turns of a scenario that does not say.
pub const TURNS_DEFAULT: u64 = 100;

/// The ticks of a turn unless the scenario says otherwise.
pub const TICKS_PER_TURN_DEFAULT: u32 = 10;
/// The most ticks of a turn. A run can be stopped, and asked for something, between turns only.
pub const TICKS_PER_TURN_MAX: u32 = 100_000;

/// How many of the newest checkpoints are kept unless the scenario says otherwise.
pub const KEEP_CHECKPOINTS_DEFAULT: NonZeroU64 = NonZeroU64::new(20).unwrap();

/// Populations up to this size have a checkpoint of every turn; a larger one has one for each
/// thousand agents' number of turns, but at least every hundred turns.
const AGENTS_PER_CHECKPOINT_TURN: u64 = 1000;
const CHECKPOINT_EVERY_DEFAULT_MAX: u64 = 100;
/// A run writes about so many checkpoints, unless someone has more written.
const CHECKPOINTS_DEFAULT: u64 = 100;

/// When simulated time begins unless the scenario says otherwise.
const START_TIME_DEFAULT: &str = "2026-01-01T00:00:00Z";

/// A simulation: who takes part, in which world, for how long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "scenario")]
pub struct ScenarioFile {
    /// The scenario's name; the same as the name of its file.
    #[schemars(required)]
    pub name: Option<String>,
    /// The chart that says how agents behave.
    #[schemars(required)]
    pub chart: Option<String>,
    /// Who is there at the start, in groups.
    pub population: Option<Vec<GroupFile>>,
    /// What happens to agents.
    pub world: Option<WorldFile>,
    /// For how many turns it runs.
    #[schemars(extend("default" = TURNS_DEFAULT))]
    pub turns: Option<u64>,
    /// How many ticks a turn has. In a tick, an agent changes its state once at most.
    #[schemars(extend("default" = TICKS_PER_TURN_DEFAULT, "maximum" = TICKS_PER_TURN_MAX))]
    pub ticks_per_turn: Option<NonZeroU64>,
    /// All chance follows from this number.
    #[schemars(extend("default" = 0))]
    pub seed: Option<u64>,
    /// When simulated time begins.
    #[schemars(extend("default" = START_TIME_DEFAULT, "format" = "date-time"))]
    pub start_time: Option<String>,
    /// How many simulated seconds a tick takes.
    #[schemars(extend("default" = 1, "exclusiveMinimum" = 0))]
    pub tick_seconds: Option<f64>,
    /// How many agents there may be at once.
    #[schemars(extend("default" = MAX_AGENTS_DEFAULT, "maximum" = MAX_AGENTS_MAX))]
    pub max_agents: Option<u64>,
    /// After how many turns a checkpoint is written. Without it: after every turn for up to 1,000
    /// agents, after as many turns as there are thousands of agents for more, 100 at most, where the
    /// agents are those who are there then; and about 100 times in a run of more than 100 turns,
    /// more often where turns take long or something was asked from outside.
    pub checkpoint_every: Option<NonZeroU64>,
    /// How many of the newest checkpoints are kept. Of those before as many at most, evenly spread.
    #[schemars(extend("default" = KEEP_CHECKPOINTS_DEFAULT))]
    pub keep_checkpoints: Option<NonZeroU64>,
    /// Changes of the population while it runs.
    pub lifecycle: Option<Vec<EventFile>>,
    /// Who decides when the chart leaves it open. There is none yet, so it is refused.
    #[schemars(skip)]
    pub oracle: Option<Value>,
    /// What is recorded of the run. Nothing is yet, so it is refused.
    #[schemars(skip)]
    pub record: Option<Value>,
}

/// Agents that are alike. One has the name of the group, more are numbered: `name_1`, `name_2`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// The name of the group.
    #[schemars(required)]
    pub name: Option<String>,
    /// How many there are.
    #[schemars(extend("default" = 1))]
    pub count: Option<u64>,
    /// Values of the agents' fields, where they are not those of the chart.
    pub fields: Option<Map<String, Value>>,
    /// The behaviour of the world that they have; else that of `world.rates`.
    pub behaviour: Option<String>,
    /// The state that they begin in, without entering it; else the chart's initial state.
    pub state: Option<String>,
}

/// What happens to agents. In each tick an agent may be met by one trigger: those that its state
/// knows are tried in order, and each comes with its rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldFile {
    /// How often each trigger comes.
    pub rates: Option<Vec<RateFile>>,
    /// Rates for groups that name them as their `behaviour`.
    pub behaviours: Option<BTreeMap<String, Vec<RateFile>>>,
    /// What values of the world are at first, where that is not what the chart says. A fork for which
    /// one is set begins with that.
    pub values: Option<BTreeMap<String, Value>>,
}

/// How often a trigger comes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateFile {
    /// The trigger.
    #[schemars(required)]
    pub trigger: Option<String>,
    /// How likely it is in a tick, from 0 to 1.
    #[schemars(required, extend("minimum" = 0, "maximum" = 1))]
    pub rate: Option<f64>,
    /// Only in this state; in every state that knows the trigger, if none.
    pub state: Option<String>,
}

/// A change of the population, after the actions of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFile {
    /// The turn; the first is 1.
    #[schemars(required)]
    pub turn: Option<NonZeroU64>,
    /// What is done.
    #[schemars(required)]
    pub operation: Option<Operation>,
    /// Whom it is done to; for `add_agent` the name that is wanted.
    #[schemars(required)]
    pub target_agent_name: Option<String>,
    /// The agent that asks for it; none when it comes from outside.
    pub initiating_agent: Option<String>,
    /// For `add_agent`: values of the agent's fields, and `state`.
    pub initial_state: Option<Map<String, Value>>,
    /// For `pause_agent`: how many turns it skips; until it is resumed, if none.
    #[schemars(extend("minimum" = 1))]
    pub auto_resume_turns: Option<i64>,
}

/// A scenario that fits its chart. It never changes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// How agents behave.
    pub chart: Arc<Chart>,
    /// Who is there at the start.
    pub groups: Vec<Group>,
    /// How often triggers come; the first is for those who have no behaviour of their own.
    pub behaviours: Vec<Behaviour>,
    /// What values of the world are at first, where that is not what the chart says.
    pub values: Vec<(WorldId, ScalarValue)>,
    /// For how many turns it runs.
    pub turns: u64,
    /// How many ticks a turn has.
    pub ticks_per_turn: u32,
    /// What all chance follows from.
    pub seed: u64,
    /// When simulated time begins.
    pub start_time: Timestamp,
    /// How many simulated seconds a tick takes.
    pub tick_seconds: f64,
    /// How many agents there may be at once.
    pub max_agents: u64,
    /// After how many turns a checkpoint is written, if it says.
    pub checkpoint_every: Option<NonZeroU64>,
    /// How many of the newest checkpoints are kept.
    pub keep_checkpoints: NonZeroU64,
    /// Changes of the population by turn, in the order of the file.
    pub events: BTreeMap<u64, Vec<LifecycleAction>>,
}

/// Agents that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The name of the group.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// How they begin.
    pub start: Start,
}

/// How an agent begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The state it is in.
    pub state: StateId,
    /// Fields that are not as the chart has them.
    pub fields: Vec<(FieldId, ScalarValue)>,
    /// Its behaviour, by its place in the scenario.
    pub behaviour: BehaviourId,
}

/// How often triggers come, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Behaviour {
    /// Its name; empty for the one of everybody else.
    pub name: String,
    /// The triggers.
    pub rates: Vec<Rate>,
}

/// How often a trigger comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The trigger.
    pub trigger: TriggerId,
    /// Only in this state, if there is one.
    pub state: Option<StateId>,
    /// How likely it is in a tick.
    pub rate: f64,
}

impl Scenario {
    /// The names of the behaviours that have one, in order.
    pub(crate) fn behaviours_named(&self) -> Vec<String> {
        self.behaviours.iter().skip(1).map(|behaviour| behaviour.name.clone()).collect()
    }

    /// How many agents there are at the start.
    pub fn agents(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// After how many turns the next checkpoint is written, when there are so many agents in a run
    /// of so many turns.
    pub(crate) fn checkpoint_after(&self, agents: u64, turns: u64) -> u64 {
        self.checkpoint_every.map_or_else(|| checkpoint_every_default(agents, turns), u64::from)
    }

    /// How many ticks of the kernel a turn has: its own, and one for the end of the round.
    pub(crate) fn kernel_ticks(&self) -> u64 {
        u64::from(self.ticks_per_turn) + 1
    }

    /// When something happened in a tick of the kernel, which counts from 1. The end of a round is
    /// at the end of its last tick.
    pub(crate) fn time_of(&self, kernel_tick: u64) -> Timestamp {
        let before = kernel_tick.saturating_sub(1);
        let (turn, tick) = (before / self.kernel_ticks(), before % self.kernel_ticks());
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer ticks than that")]
        let ticks = (turn * u64::from(self.ticks_per_turn) + tick) as f64;
        let after = SignedDuration::try_from_secs_f64(ticks * self.tick_seconds);
        let after = after.unwrap_or(SignedDuration::MAX);
        self.start_time.saturating_add(after).unwrap_or(Timestamp::MAX)
    }

    /// The rates as the kernel takes them.
    pub(crate) fn rates(&self) -> Result<Rates, RatesError> {
        let behaviours = self.behaviours.iter().map(|behaviour| {
            let by_state = self.chart.states().map(|state| (state, self.shares(behaviour, state)));
            kernel::Behaviour { rates: Vec::new(), by_state: by_state.collect() }
        });
        Rates::new(&self.chart, &behaviours.collect::<Vec<_>>())
    }

    /// The share of ticks that bring each trigger in a state. One that the state does not know is
    /// not tried, and one that comes leaves no room for those behind it.
    fn shares(&self, behaviour: &Behaviour, state: StateId) -> Vec<kernel::Rate> {
        let known = self.chart.valid_triggers(state);
        let mut room = 1.0;
        let tried = behaviour.rates.iter().filter(|rate| {
            known.contains(&rate.trigger) && rate.state.is_none_or(|only| only == state)
        });
        tried
            .map(|Rate { trigger, rate, .. }| {
                let share = room * rate;
                room -= share;
                kernel::Rate { trigger: *trigger, rate: share }
            })
            .collect()
    }

    /// The most turns that the ticks of a run can be counted for.
    pub fn turns_max(&self) -> u64 {
        (u64::from(u32::MAX) - 1) / self.kernel_ticks()
    }

    /// How an agent begins that is added with this initial state, or what is wrong with it.
    pub fn start(&self, initial_state: &Map<String, Value>) -> Result<Start, String> {
        check::start(&self.chart, &self.behaviours, initial_state).map_err(|faults| {
            let told = faults.iter();
            let told = told.map(|(key, fault)| fault.in_words(&format!("initial_state.{key}")));
            told.collect::<Vec<_>>().join("; ")
        })
    }
}

/// To write a checkpoint takes about as long as a hundred ticks, so in a long run or a large one there
/// is not one after every turn.
fn checkpoint_every_default(agents: u64, turns: u64) -> u64 {
    let by_agents = agents.div_ceil(AGENTS_PER_CHECKPOINT_TURN).min(CHECKPOINT_EVERY_DEFAULT_MAX);
    by_agents.max(turns.div_ceil(CHECKPOINTS_DEFAULT)).max(1)
}

/// The JSON Schema (draft 2020-12) of a scenario file.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ScenarioFile>().to_value()
}
