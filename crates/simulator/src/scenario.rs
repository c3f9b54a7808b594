//! Scenarios: `scenarios/NAME.yaml`.
//!
//! [`ScenarioFile`] is the file as written; any YAML or JSON reader can fill it. [`Scenario::new`]
//! checks it against its chart and reports every error.

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

pub use self::check::{ScenarioError, ScenarioLimit};
pub use self::scaling::ScalingError;
use crate::kernel::{self, BehaviourId, RateTable, RatesError};
use crate::lifecycle::{LifecycleAction, LifecycleOperation};

/// The default of `max_agents`.
pub const MAX_AGENTS_DEFAULT: u64 = 25;

/// The maximum of `max_agents`.
pub const MAX_AGENTS_MAX: u64 = 100_000_000;

/// The default number of turns.
pub const TURNS_DEFAULT: u64 = 100;

/// The default number of ticks per turn.
pub const TICKS_PER_TURN_DEFAULT: u32 = 10;
/// The maximum number of ticks per turn. A run can be stopped and handle requests only between
/// turns.
pub const TICKS_PER_TURN_MAX: u32 = 100_000;

/// The default number of newest checkpoints to keep.
pub const KEEP_CHECKPOINTS_DEFAULT: NonZeroU64 = NonZeroU64::new(20).unwrap();

/// Populations up to this size have a checkpoint of every turn. Larger ones have one every N turns
/// for N thousand agents, at most every 100 turns.
const AGENTS_PER_CHECKPOINT_TURN: u64 = 1000;
const CHECKPOINT_EVERY_DEFAULT_MAX: u64 = 100;
/// The approximate number of checkpoints that a long run writes.
const CHECKPOINTS_DEFAULT: u64 = 100;

/// The trigger fired for all agents at the end of a turn.
const ROUND_ENDS: &str = "round_ends";

/// The default start of simulated time.
const START_TIME_DEFAULT: &str = "2026-01-01T00:00:00Z";

/// A simulation: its population, world and duration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "scenario")]
pub struct ScenarioFile {
    /// The scenario's name; must match the file name.
    #[schemars(required)]
    pub name: Option<String>,
    /// The chart that defines the behaviour of agents.
    #[schemars(required)]
    pub chart: Option<String>,
    /// The initial population, in groups.
    pub population: Option<Vec<GroupFile>>,
    /// Trigger rates and initial world values.
    pub world: Option<WorldFile>,
    /// The number of turns.
    #[schemars(extend("default" = TURNS_DEFAULT))]
    pub turns: Option<u64>,
    /// The number of ticks per turn. An agent changes its state at most once per tick.
    #[schemars(extend("default" = TICKS_PER_TURN_DEFAULT, "maximum" = TICKS_PER_TURN_MAX))]
    pub ticks_per_turn: Option<NonZeroU64>,
    /// The seed of all random draws.
    #[schemars(extend("default" = 0))]
    pub seed: Option<u64>,
    /// The start of simulated time.
    #[schemars(extend("default" = START_TIME_DEFAULT, "format" = "date-time"))]
    pub start_time: Option<String>,
    /// The simulated seconds per tick.
    #[schemars(extend("default" = 1, "exclusiveMinimum" = 0))]
    pub tick_seconds: Option<f64>,
    /// The maximum number of agents at any time.
    #[schemars(extend("default" = MAX_AGENTS_DEFAULT, "maximum" = MAX_AGENTS_MAX))]
    pub max_agents: Option<u64>,
    /// The number of turns between checkpoints. By default 1 for up to 1,000 agents, and one more
    /// per further 1,000 agents, up to 100. A run of more than 100 turns writes about 100
    /// checkpoints, more if turns are slow or requests come from outside.
    pub checkpoint_every: Option<NonZeroU64>,
    /// The number of newest checkpoints to keep. At most as many older ones are kept, evenly
    /// spread.
    #[schemars(extend("default" = KEEP_CHECKPOINTS_DEFAULT))]
    pub keep_checkpoints: Option<NonZeroU64>,
    /// Scheduled changes of the population.
    pub lifecycle: Option<Vec<EventFile>>,
    /// Reserved for the oracle; rejected by this version.
    #[schemars(skip)]
    pub oracle: Option<Value>,
    /// Reserved for recordings; rejected by this version.
    #[schemars(skip)]
    pub record: Option<Value>,
}

/// A group of identical agents. A single agent has the name of the group; several are numbered:
/// `name_1`, `name_2`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// The name of the group.
    #[schemars(required)]
    pub name: Option<String>,
    /// The number of agents.
    #[schemars(extend("default" = 1))]
    pub count: Option<u64>,
    /// Values of fields that differ from the chart.
    pub fields: Option<Map<String, Value>>,
    /// A behaviour of `world.behaviours`; by default the rates of `world.rates`.
    pub behaviour: Option<String>,
    /// The initial state, without its entry actions; by default that of the chart.
    pub state: Option<String>,
}

/// Trigger rates and initial world values. In each tick an agent draws at most one trigger: those
/// that are valid in its state are tried in order, each with its rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldFile {
    /// The default trigger rates.
    pub rates: Option<Vec<RateFile>>,
    /// Trigger rates of groups with this `behaviour`.
    pub behaviours: Option<BTreeMap<String, Vec<RateFile>>>,
    /// Initial world values that differ from the chart. A fork that sets one starts with it.
    pub values: Option<BTreeMap<String, Value>>,
}

/// The rate of a trigger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateFile {
    /// The trigger.
    #[schemars(required)]
    pub trigger: Option<String>,
    /// The probability per tick, from 0 to 1.
    #[schemars(required, extend("minimum" = 0, "maximum" = 1))]
    pub rate: Option<f64>,
    /// The only state with this rate; by default every state in which the trigger is valid.
    pub state: Option<String>,
}

/// A change of the population at the end of a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFile {
    /// The turn; the first is 1.
    #[schemars(required)]
    pub turn: Option<NonZeroU64>,
    /// The operation.
    #[schemars(required)]
    pub operation: Option<LifecycleOperation>,
    /// The target; for `add_agent` the requested name.
    #[schemars(required)]
    pub target_agent_name: Option<String>,
    /// The requesting agent; none for requests from outside.
    pub initiating_agent: Option<String>,
    /// For `add_agent`: values of the agent's fields, and `state`.
    pub initial_state: Option<Map<String, Value>>,
    /// For `pause_agent`: the number of turns to skip; by default until resumed.
    #[schemars(extend("minimum" = 1))]
    pub auto_resume_turns: Option<i64>,
}

/// A checked scenario. It never changes.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// The chart.
    pub chart: Arc<Chart>,
    /// The initial population.
    pub groups: Vec<AgentGroup>,
    /// The behaviours; the first is the default.
    pub behaviours: Vec<Behaviour>,
    /// Initial world values that differ from the chart.
    pub values: Vec<(WorldId, ScalarValue)>,
    /// The number of turns.
    pub turns: u64,
    /// The number of ticks per turn.
    pub ticks_per_turn: u32,
    /// The trigger fired for all agents at the end of a turn, if the chart has it.
    pub round_ends: Option<TriggerId>,
    /// The seed of all random draws.
    pub seed: u64,
    /// The start of simulated time.
    pub start_time: Timestamp,
    /// The simulated seconds per tick.
    pub tick_seconds: f64,
    /// The maximum number of agents at any time.
    pub max_agents: u64,
    /// The number of turns between checkpoints, if set.
    pub checkpoint_every: Option<NonZeroU64>,
    /// The number of newest checkpoints to keep.
    pub keep_checkpoints: NonZeroU64,
    /// Scheduled changes of the population by turn, in file order.
    pub events: BTreeMap<u64, Vec<LifecycleAction>>,
}

/// A group of identical agents.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentGroup {
    /// The name of the group.
    pub name: String,
    /// The number of agents.
    pub count: u64,
    /// The start of each agent.
    pub start: AgentStart,
}

/// The start of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStart {
    /// The initial state.
    pub state: StateId,
    /// The fields that differ from the chart.
    pub fields: Vec<(FieldId, ScalarValue)>,
    /// The index of its behaviour.
    pub behaviour: BehaviourId,
}

/// Trigger rates, in the order in which they are tried.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Behaviour {
    /// The name; empty for the default.
    pub name: String,
    /// The rates.
    pub rates: Vec<ScenarioRate>,
}

/// The rate of a trigger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScenarioRate {
    /// The trigger.
    pub trigger: TriggerId,
    /// The only state with this rate, if any.
    pub state: Option<StateId>,
    /// The probability per tick.
    pub rate: f64,
}

impl Scenario {
    /// Returns the names of all behaviours but the default.
    pub(crate) fn behaviour_names(&self) -> Vec<String> {
        self.behaviours.iter().skip(1).map(|behaviour| behaviour.name.clone()).collect()
    }

    /// Returns the initial number of agents.
    pub fn agents(&self) -> u64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// Returns the number of turns between checkpoints for a population and a number of turns.
    pub(crate) fn checkpoint_interval(&self, agents: u64, turns: u64) -> u64 {
        self.checkpoint_every.map_or_else(|| checkpoint_every_default(agents, turns), u64::from)
    }

    /// Returns the number of kernel ticks per turn: its own, and one for `round_ends` if the chart
    /// has it. Without it, turns only group ticks.
    pub(crate) fn kernel_ticks(&self) -> u64 {
        u64::from(self.ticks_per_turn) + u64::from(self.round_ends.is_some())
    }

    /// Returns the simulated time of a kernel tick, which counts from 1. `round_ends` falls on the
    /// end of the last tick.
    pub(crate) fn time_of_tick(&self, kernel_tick: u64) -> Timestamp {
        let before = kernel_tick.saturating_sub(1);
        let (turn, tick) = (before / self.kernel_ticks(), before % self.kernel_ticks());
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer ticks than that")]
        let ticks = (turn * u64::from(self.ticks_per_turn) + tick) as f64;
        let after = SignedDuration::try_from_secs_f64(ticks * self.tick_seconds);
        let after = after.unwrap_or(SignedDuration::MAX);
        self.start_time.saturating_add(after).unwrap_or(Timestamp::MAX)
    }

    /// Returns the rates for the kernel.
    pub(crate) fn rates(&self) -> Result<RateTable, RatesError> {
        let behaviours = self.behaviours.iter().map(|behaviour| {
            let by_state = self.chart.states().map(|state| (state, self.shares(behaviour, state)));
            kernel::BehaviourRates { rates: Vec::new(), by_state: by_state.collect() }
        });
        RateTable::new(&self.chart, &behaviours.collect::<Vec<_>>())
    }

    /// Returns the share of ticks of each trigger in a state. Triggers that are not valid in the
    /// state are skipped; a drawn trigger excludes those after it.
    fn shares(&self, behaviour: &Behaviour, state: StateId) -> Vec<kernel::TriggerRate> {
        let known = self.chart.valid_triggers(state);
        let mut room = 1.0;
        let tried = behaviour.rates.iter().filter(|rate| {
            known.contains(&rate.trigger) && rate.state.is_none_or(|only| only == state)
        });
        tried
            .map(|ScenarioRate { trigger, rate, .. }| {
                let share = room * rate;
                room -= share;
                kernel::TriggerRate { trigger: *trigger, rate: share }
            })
            .collect()
    }

    /// Returns the maximum number of turns for the tick counter.
    pub fn turns_max(&self) -> u64 {
        (u64::from(u32::MAX) - 1) / self.kernel_ticks()
    }

    /// Resolves the start of an agent with this initial state.
    pub fn start(&self, initial_state: &Map<String, Value>) -> Result<AgentStart, String> {
        check::start(&self.chart, &self.behaviours, initial_state).map_err(|problems| {
            let messages = problems.iter();
            let messages =
                messages.map(|(key, problem)| problem.describe(&format!("initial_state.{key}")));
            messages.collect::<Vec<_>>().join("; ")
        })
    }
}

/// Writing a checkpoint costs about 100 ticks, so long and large runs write fewer.
fn checkpoint_every_default(agents: u64, turns: u64) -> u64 {
    let by_agents = agents.div_ceil(AGENTS_PER_CHECKPOINT_TURN).min(CHECKPOINT_EVERY_DEFAULT_MAX);
    by_agents.max(turns.div_ceil(CHECKPOINTS_DEFAULT)).max(1)
}

/// Returns the JSON Schema (draft 2020-12) of a scenario file.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ScenarioFile>().to_value()
}
