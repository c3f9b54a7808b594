//! Checks a scenario against its chart and reports every error.

mod events;
mod initial_values;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use polity_statechart::{Chart, ScalarValue, TIMEOUT, TriggerId, WorldId};

pub(super) use self::initial_values::start;
use self::initial_values::{ValueProblem, state_of, unknown, world_of};
use super::{
    AgentGroup, Behaviour, GroupFile, KEEP_CHECKPOINTS_DEFAULT, MAX_AGENTS_DEFAULT, MAX_AGENTS_MAX,
    ROUND_ENDS, RateFile, START_TIME_DEFAULT, Scenario, ScenarioFile, ScenarioRate,
    TICKS_PER_TURN_DEFAULT, TICKS_PER_TURN_MAX, TURNS_DEFAULT,
};
use crate::kernel::BEHAVIOURS_MAX;
use crate::population::names;

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

/// The key of the state in an initial state.
const STATE: &str = "state";
/// The key of the behaviour in an initial state.
const BEHAVIOUR: &str = "behaviour";

/// One error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The path to the value, such as `world.rates[2].trigger`.
    pub location: String,
    /// The message.
    pub message: String,
    /// The value, if it is not an allowed one.
    pub found: Option<String>,
    /// The allowed values.
    pub allowed: Vec<String>,
    /// The exceeded limit, if any.
    pub limit: Option<ScenarioLimit>,
}

/// A limit of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioLimit {
    /// `max_agents` of the scenario.
    MaxAgents,
    /// The maximum of `max_agents`.
    Agents,
    /// The maximum number of turns.
    Turns,
}

impl Scenario {
    /// Checks a file against its chart. Missing values get defaults.
    pub fn new(file: &ScenarioFile, chart: Arc<Chart>) -> Result<Self, Vec<ScenarioError>> {
        let mut check = ScenarioChecker { chart: &chart, errors: Vec::new() };
        check.reject_reserved_fields();
        check.reject_unsupported(file);
        let behaviours = check.behaviours(file);
        let values = check.values(file);
        let population = file.population.as_deref().unwrap_or_default();
        let groups = check.groups(population, &behaviours);
        let agents = groups.iter().fold(0u64, |sum, group| sum.saturating_add(group.count));
        let max_agents = check.max_agents(file.max_agents, agents);
        let events =
            check.events(file.lifecycle.as_deref().unwrap_or_default(), population, &behaviours);
        let start_time = check.start_time(file.start_time.as_deref());
        let tick_seconds = check.tick_seconds(file.tick_seconds);
        let ticks_per_turn = check.ticks_per_turn(file.ticks_per_turn);
        let name = check.required("name", file.name.as_deref()).unwrap_or_default().to_owned();
        let errors = check.errors;
        let scenario = Self {
            name,
            groups,
            behaviours,
            values,
            turns: file.turns.unwrap_or(TURNS_DEFAULT),
            ticks_per_turn,
            round_ends: chart.trigger(ROUND_ENDS),
            seed: file.seed.unwrap_or_default(),
            start_time,
            tick_seconds,
            max_agents,
            checkpoint_every: file.checkpoint_every,
            keep_checkpoints: file.keep_checkpoints.unwrap_or(KEEP_CHECKPOINTS_DEFAULT),
            events,
            chart,
        };
        scenario.with(errors)
    }

    /// Returns the scenario, unless there are errors.
    fn with(self, mut errors: Vec<ScenarioError>) -> Result<Self, Vec<ScenarioError>> {
        let limit = self.turns_max();
        if self.turns > limit {
            let message = format!("turns must be at most {limit}, found {}", self.turns);
            let error = ScenarioError::new("turns", message);
            errors.push(ScenarioError { limit: Some(ScenarioLimit::Turns), ..error });
        }
        if errors.is_empty() && !self.ends_in_time() {
            let message = format!(
                "the run would end after the year 9999: {} turns of {} ticks of {} seconds from {} on",
                self.turns, self.ticks_per_turn, self.tick_seconds, self.start_time
            );
            errors.push(ScenarioError::new("tick_seconds", message));
        }
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// True if the end of simulated time can be represented.
    fn ends_in_time(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer ticks than that")]
        let ticks = self.turns as f64 * f64::from(self.ticks_per_turn);
        let took = SignedDuration::try_from_secs_f64(ticks * self.tick_seconds);
        took.is_ok_and(|took| self.start_time.checked_add(took).is_ok())
    }
}

impl ScenarioError {
    fn new(location: &str, message: impl Into<String>) -> Self {
        Self {
            location: location.to_owned(),
            message: message.into(),
            found: None,
            allowed: Vec::new(),
            limit: None,
        }
    }
}

struct ScenarioChecker<'a> {
    chart: &'a Chart,
    errors: Vec<ScenarioError>,
}

impl ScenarioChecker<'_> {
    fn report(&mut self, location: &str, message: impl Into<String>) {
        self.errors.push(ScenarioError::new(location, message));
    }

    /// Reports a message that follows its location.
    fn report_at(&mut self, location: &str, message: &str) {
        self.report(location, format!("{location}: {message}"));
    }

    fn problem(&mut self, location: &str, problem: ValueProblem) {
        match problem {
            ValueProblem::Unknown { what, found, allowed } => {
                self.report_at(location, &format!("there is no {what} \"{found}\""));
                if let Some(error) = self.errors.last_mut() {
                    (error.found, error.allowed) = (Some(found), allowed);
                }
            }
            ValueProblem::Other(message) => self.report_at(location, &message),
        }
    }

    /// Rejects fields whose names have another meaning in an initial state.
    fn reject_reserved_fields(&mut self) {
        for name in [STATE, BEHAVIOUR] {
            if self.chart.field(name).is_some() {
                let chart = self.chart.name();
                let message = format!(
                    "the chart \"{chart}\" has a field \"{name}\", which means something else in a scenario: rename it"
                );
                self.report("chart", message);
            }
        }
    }

    fn required<T>(&mut self, location: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.report(location, format!("missing field \"{location}\""));
        }
        value
    }

    fn behaviours(&mut self, file: &ScenarioFile) -> Vec<Behaviour> {
        let world = file.world.clone().unwrap_or_default();
        let rates = self.rates("world.rates", world.rates.as_deref().unwrap_or_default());
        let mut all = vec![Behaviour { name: String::new(), rates }];
        for (name, rates) in world.behaviours.unwrap_or_default() {
            if name.trim().is_empty() {
                self.report_at("world.behaviours", "a name must not be empty");
            }
            let rates = self.rates(&format!("world.behaviours.{name}"), &rates);
            all.push(Behaviour { name, rates });
        }
        if all.len() > BEHAVIOURS_MAX {
            let (count, most) = (all.len() - 1, BEHAVIOURS_MAX - 1);
            let message = format!("{count} are too many: the maximum is {most}");
            self.report_at("world.behaviours", &message);
        }
        all
    }

    /// Returns the initial world values that differ from the chart.
    fn values(&mut self, file: &ScenarioFile) -> Vec<(WorldId, ScalarValue)> {
        let given = file.world.as_ref().and_then(|world| world.values.as_ref());
        let mut values = Vec::new();
        for (name, value) in given.into_iter().flatten() {
            match world_of(self.chart, name, value) {
                Ok(value) => values.push(value),
                Err(problem) => self.problem(&format!("world.values.{name}"), problem),
            }
        }
        values
    }

    fn rates(&mut self, location: &str, files: &[RateFile]) -> Vec<ScenarioRate> {
        let files = files.iter().enumerate();
        files.filter_map(|(index, file)| self.rate(&format!("{location}[{index}]"), file)).collect()
    }

    fn rate(&mut self, location: &str, file: &RateFile) -> Option<ScenarioRate> {
        let at = |field: &str| format!("{location}.{field}");
        let trigger = self.required(&at("trigger"), file.trigger.as_deref());
        let trigger = trigger.and_then(|name| {
            let found = trigger_of(self.chart, name);
            found.map_err(|problem| self.problem(&at("trigger"), problem)).ok()
        });
        let state = match file.state.as_deref().map(|name| state_of(self.chart, name)).transpose() {
            Ok(state) => state,
            Err(problem) => {
                self.problem(&at("state"), problem);
                return None;
            }
        };
        let rate = self.required(&at("rate"), file.rate)?;
        if !(0.0..=1.0).contains(&rate) {
            self.report(&at("rate"), format!("{} must be from 0 to 1, found {rate}", at("rate")));
        }
        let trigger = trigger?;
        if let Some(state) = state
            && !self.chart.valid_triggers(state).contains(&trigger)
        {
            let (state, trigger) = (self.chart.state_name(state), self.chart.trigger_name(trigger));
            let message = format!("no transition for \"{trigger}\" in the state \"{state}\"");
            self.report_at(&at(STATE), &message);
        }
        Some(ScenarioRate { trigger, state, rate })
    }

    fn groups(&mut self, files: &[GroupFile], behaviours: &[Behaviour]) -> Vec<AgentGroup> {
        let mut groups: Vec<(usize, AgentGroup)> = Vec::new();
        let mut names = HashSet::new();
        for (index, file) in files.iter().enumerate() {
            let location = format!("population[{index}]");
            let at = |field: &str| format!("{location}.{field}");
            let Some(name) = self.required(&at("name"), file.name.clone()) else { continue };
            if let Some(problem) = names::name_error(&name) {
                self.report_at(&at("name"), &problem);
            }
            if !names.insert(name.clone()) {
                self.report_at(&at("name"), &format!("two groups have the name \"{name}\""));
            }
            let count = file.count.unwrap_or(1);
            if count > 1 && names::name_error(&format!("{name}_{count}")).is_some() {
                self.report_at(&at("name"), "the name is too long with a number appended");
            }
            let mut initial = file.fields.clone().unwrap_or_default();
            for (key, given) in [(STATE, &file.state), (BEHAVIOUR, &file.behaviour)] {
                if initial.remove(key).is_some() {
                    let message = format!("it is not a field; use {} instead", at(key));
                    self.report_at(&at(&format!("fields.{key}")), &message);
                }
                if let Some(given) = given {
                    initial.insert(key.to_owned(), given.as_str().into());
                }
            }
            match start(self.chart, behaviours, &initial) {
                Ok(start) => groups.push((index, AgentGroup { name, count, start })),
                Err(problems) => {
                    for (key, problem) in problems {
                        let is_field = key != BEHAVIOUR && key != STATE;
                        let key = if is_field { format!("fields.{key}") } else { key };
                        self.problem(&at(&key), problem);
                    }
                }
            }
        }
        self.reject_name_overlap(&groups);
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// Rejects a group of one with the name of an agent of another group.
    fn reject_name_overlap(&mut self, groups: &[(usize, AgentGroup)]) {
        let many: BTreeMap<&str, u64> = groups
            .iter()
            .filter(|(_, group)| group.count > 1)
            .map(|(_, group)| (group.name.as_str(), group.count))
            .collect();
        for (index, group) in groups.iter().filter(|(_, group)| group.count == 1) {
            let taken = names::split_number(&group.name)
                .and_then(|(stem, number)| Some((stem, number, *many.get(stem)?)))
                .filter(|(_, number, count)| number <= count);
            if let Some((stem, _, _)) = taken {
                let message = format!("\"{}\" is an agent of the group \"{stem}\"", group.name);
                self.report_at(&format!("population[{index}].name"), &message);
            }
        }
    }

    fn max_agents(&mut self, max_agents: Option<u64>, agents: u64) -> u64 {
        let limit = max_agents.unwrap_or(MAX_AGENTS_DEFAULT);
        if limit > MAX_AGENTS_MAX {
            let message = format!("max_agents must be at most {MAX_AGENTS_MAX}, found {limit}");
            self.over_limit("max_agents", message, ScenarioLimit::Agents);
        } else if agents > limit {
            let location = if max_agents.is_some() { "max_agents" } else { "population" };
            let message =
                format!("the population has {agents} agents, and max_agents is {limit}: raise it");
            self.over_limit(location, message, ScenarioLimit::MaxAgents);
        }
        limit
    }

    fn over_limit(&mut self, location: &str, message: String, limit: ScenarioLimit) {
        let error = ScenarioError::new(location, message);
        self.errors.push(ScenarioError { limit: Some(limit), ..error });
    }

    /// Rejects fields that this version does not support.
    fn reject_unsupported(&mut self, file: &ScenarioFile) {
        let instead = "until then oracle_default of the chart decides";
        for (location, value, instead) in [
            ("oracle", &file.oracle, instead),
            ("record", &file.record, "checkpoints and `polity sim export` show what happened"),
        ] {
            if value.is_some() {
                let message = format!("this version has no {location} yet; {instead}");
                self.report_at(location, &message);
            }
        }
    }

    fn ticks_per_turn(&mut self, ticks: Option<NonZeroU64>) -> u32 {
        let Some(ticks) = ticks else { return TICKS_PER_TURN_DEFAULT };
        let counted = u32::try_from(ticks.get()).ok();
        counted.filter(|ticks| *ticks <= TICKS_PER_TURN_MAX).unwrap_or_else(|| {
            let message = format!(
                "ticks_per_turn must be at most {TICKS_PER_TURN_MAX}, found {ticks}: use more turns"
            );
            self.report("ticks_per_turn", message);
            TICKS_PER_TURN_DEFAULT
        })
    }

    fn start_time(&mut self, text: Option<&str>) -> Timestamp {
        let text = text.unwrap_or(START_TIME_DEFAULT);
        text.parse().unwrap_or_else(|_| {
            let message =
                format!("start_time must be a time such as {START_TIME_DEFAULT}, found \"{text}\"");
            self.report("start_time", message);
            Timestamp::UNIX_EPOCH
        })
    }

    fn tick_seconds(&mut self, seconds: Option<f64>) -> f64 {
        let seconds = seconds.unwrap_or(1.0);
        if !(seconds > 0.0 && seconds.is_finite()) {
            self.report("tick_seconds", format!("tick_seconds must be above 0, found {seconds}"));
        }
        seconds
    }
}

/// Finds a trigger that can have a rate.
fn trigger_of(chart: &Chart, name: &str) -> Result<TriggerId, ValueProblem> {
    if name == TIMEOUT {
        return Err(ValueProblem::Other("timeouts come by themselves and have no rate".to_owned()));
    }
    chart.trigger(name).ok_or_else(|| {
        let triggers = chart.triggers().map(|trigger| chart.trigger_name(trigger).to_owned());
        unknown("trigger", name, triggers.filter(|trigger| trigger != TIMEOUT))
    })
}
