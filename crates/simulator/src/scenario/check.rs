//! The rules of a scenario, held against its chart. All that is wrong is told, not only the first.

mod events;
mod starts;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use polity_statechart::{Chart, ScalarValue, TIMEOUT, TriggerId, WorldId};

pub(super) use self::starts::start;
use self::starts::{Fault, state_of, world_of};
use super::{
    Behaviour, Group, GroupFile, KEEP_CHECKPOINTS_DEFAULT, MAX_AGENTS_DEFAULT, MAX_AGENTS_MAX,
    Rate, RateFile, START_TIME_DEFAULT, Scenario, ScenarioFile, TICKS_PER_TURN_DEFAULT,
    TICKS_PER_TURN_MAX, TURNS_DEFAULT,
};
use crate::kernel::BEHAVIOURS_MAX;
use crate::names;

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;

/// The key of an initial state that names the state and not a field.
const STATE: &str = "state";
/// The key of an initial state that names the behaviour and not a field.
const BEHAVIOUR: &str = "behaviour";

/// One thing that is wrong with a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The way to the value, such as `world.rates[2].trigger`.
    pub place: String,
    /// What is wrong.
    pub message: String,
    /// What stands there, if it is not one of those in `allowed`.
    pub found: Option<String>,
    /// What may stand there.
    pub allowed: Vec<String>,
    /// The limit that is exceeded, if it is one.
    pub limit: Option<Limit>,
}

/// How much there may be of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Of agents, as the scenario has it.
    MaxAgents,
    /// Of agents in any scenario.
    Agents,
    /// Of turns.
    Turns,
}

impl Scenario {
    /// Holds a file against its chart. What the file does not say is as the defaults have it.
    pub fn new(file: &ScenarioFile, chart: Arc<Chart>) -> Result<Self, Vec<ScenarioError>> {
        let mut check = Check { chart: &chart, errors: Vec::new() };
        check.refuse_reserved();
        check.refuse_unknown_yet(file);
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

    /// The scenario, unless something is wrong with it.
    fn with(self, mut errors: Vec<ScenarioError>) -> Result<Self, Vec<ScenarioError>> {
        let most = self.turns_max();
        if self.turns > most {
            let message = format!("turns must be at most {most}, found {}", self.turns);
            let error = ScenarioError::new("turns", message);
            errors.push(ScenarioError { limit: Some(Limit::Turns), ..error });
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

    /// Whether there is a time for its end.
    fn ends_in_time(&self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "there are far fewer ticks than that")]
        let ticks = self.turns as f64 * f64::from(self.ticks_per_turn);
        let took = SignedDuration::try_from_secs_f64(ticks * self.tick_seconds);
        took.is_ok_and(|took| self.start_time.checked_add(took).is_ok())
    }
}

impl ScenarioError {
    fn new(place: &str, message: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            message: message.into(),
            found: None,
            allowed: Vec::new(),
            limit: None,
        }
    }
}

struct Check<'a> {
    chart: &'a Chart,
    errors: Vec<ScenarioError>,
}

impl Check<'_> {
    fn report(&mut self, place: &str, message: impl Into<String>) {
        self.errors.push(ScenarioError::new(place, message));
    }

    fn fault(&mut self, place: &str, fault: Fault) {
        match fault {
            Fault::Unknown { what, found, allowed } => {
                let message = format!("{place}: there is no {what} \"{found}\"");
                self.report(place, message);
                if let Some(error) = self.errors.last_mut() {
                    (error.found, error.allowed) = (Some(found), allowed);
                }
            }
            Fault::Other(message) => self.report(place, format!("{place}: {message}")),
        }
    }

    /// An initial state could not name these fields.
    fn refuse_reserved(&mut self) {
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

    fn required<T>(&mut self, place: &str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.report(place, format!("missing field \"{place}\""));
        }
        value
    }

    fn behaviours(&mut self, file: &ScenarioFile) -> Vec<Behaviour> {
        let world = file.world.clone().unwrap_or_default();
        let rates = self.rates("world.rates", world.rates.as_deref().unwrap_or_default());
        let mut all = vec![Behaviour { name: String::new(), rates }];
        for (name, rates) in world.behaviours.unwrap_or_default() {
            if name.trim().is_empty() {
                self.report("world.behaviours", "world.behaviours: a name must not be empty");
            }
            let rates = self.rates(&format!("world.behaviours.{name}"), &rates);
            all.push(Behaviour { name, rates });
        }
        if all.len() > BEHAVIOURS_MAX {
            let message = format!("world.behaviours: {} are too many", all.len() - 1);
            self.report(
                "world.behaviours",
                format!("{message}, {} is the most", BEHAVIOURS_MAX - 1),
            );
        }
        all
    }

    /// The values of the world that are not as the chart has them at first.
    fn values(&mut self, file: &ScenarioFile) -> Vec<(WorldId, ScalarValue)> {
        let given = file.world.as_ref().and_then(|world| world.values.as_ref());
        let mut values = Vec::new();
        for (name, value) in given.into_iter().flatten() {
            match world_of(self.chart, name, value) {
                Ok(value) => values.push(value),
                Err(fault) => self.fault(&format!("world.values.{name}"), fault),
            }
        }
        values
    }

    fn rates(&mut self, place: &str, files: &[RateFile]) -> Vec<Rate> {
        let files = files.iter().enumerate();
        files.filter_map(|(index, file)| self.rate(&format!("{place}[{index}]"), file)).collect()
    }

    fn rate(&mut self, place: &str, file: &RateFile) -> Option<Rate> {
        let at = |field: &str| format!("{place}.{field}");
        let trigger = self.required(&at("trigger"), file.trigger.as_deref());
        let trigger = trigger.and_then(|name| match trigger_of(self.chart, name) {
            Ok(trigger) => Some(trigger),
            Err(fault) => {
                self.fault(&at("trigger"), fault);
                None
            }
        });
        let state = match file.state.as_deref().map(|name| state_of(self.chart, name)).transpose() {
            Ok(state) => state,
            Err(fault) => {
                self.fault(&at("state"), fault);
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
            let message = format!("nothing follows on \"{trigger}\" in the state \"{state}\"");
            self.report(&at(STATE), format!("{}: {message}", at(STATE)));
        }
        Some(Rate { trigger, state, rate })
    }

    fn groups(&mut self, files: &[GroupFile], behaviours: &[Behaviour]) -> Vec<Group> {
        let mut groups: Vec<(usize, Group)> = Vec::new();
        let mut names = HashSet::new();
        for (index, file) in files.iter().enumerate() {
            let place = format!("population[{index}]");
            let at = |field: &str| format!("{place}.{field}");
            let Some(name) = self.required(&at("name"), file.name.clone()) else { continue };
            if let Some(fault) = names::fault_of(&name) {
                self.report(&at("name"), format!("{}: {fault}", at("name")));
            }
            if !names.insert(name.clone()) {
                let message = format!("{}: two groups have the name \"{name}\"", at("name"));
                self.report(&at("name"), message);
            }
            let count = file.count.unwrap_or(1);
            if count > 1 && names::fault_of(&format!("{name}_{count}")).is_some() {
                let message =
                    format!("{}: with numbers behind it the name is too long", at("name"));
                self.report(&at("name"), message);
            }
            let mut initial = file.fields.clone().unwrap_or_default();
            for (key, given) in [(STATE, &file.state), (BEHAVIOUR, &file.behaviour)] {
                let place = at(&format!("fields.{key}"));
                if initial.remove(key).is_some() {
                    let message = format!("it is no field; say {} instead", at(key));
                    self.report(&place, format!("{place}: {message}"));
                }
                if let Some(given) = given {
                    initial.insert(key.to_owned(), given.as_str().into());
                }
            }
            match start(self.chart, behaviours, &initial) {
                Ok(start) => groups.push((index, Group { name, count, start })),
                Err(faults) => {
                    for (key, fault) in faults {
                        let is_field = key != BEHAVIOUR && key != STATE;
                        let key = if is_field { format!("fields.{key}") } else { key };
                        self.fault(&at(&key), fault);
                    }
                }
            }
        }
        self.refuse_numbered(&groups);
        groups.into_iter().map(|(_, group)| group).collect()
    }

    /// A group of one may not have the name of an agent of another group.
    fn refuse_numbered(&mut self, groups: &[(usize, Group)]) {
        let many: BTreeMap<&str, u64> = groups
            .iter()
            .filter(|(_, group)| group.count > 1)
            .map(|(_, group)| (group.name.as_str(), group.count))
            .collect();
        for (index, group) in groups.iter().filter(|(_, group)| group.count == 1) {
            let taken = names::numbered(&group.name)
                .and_then(|(stem, number)| Some((stem, number, *many.get(stem)?)))
                .filter(|(_, number, count)| number <= count);
            if let Some((stem, _, _)) = taken {
                let place = format!("population[{index}].name");
                let name = &group.name;
                let message = format!("{place}: \"{name}\" is an agent of the group \"{stem}\"");
                self.report(&place, message);
            }
        }
    }

    fn max_agents(&mut self, max_agents: Option<u64>, agents: u64) -> u64 {
        let most = max_agents.unwrap_or(MAX_AGENTS_DEFAULT);
        if most > MAX_AGENTS_MAX {
            let message = format!("max_agents must be at most {MAX_AGENTS_MAX}, found {most}");
            self.over_limit("max_agents", message, Limit::Agents);
        } else if agents > most {
            let place = if max_agents.is_some() { "max_agents" } else { "population" };
            let message =
                format!("the population has {agents} agents, and max_agents is {most}: raise it");
            self.over_limit(place, message, Limit::MaxAgents);
        }
        most
    }

    fn over_limit(&mut self, place: &str, message: String, limit: Limit) {
        let error = ScenarioError::new(place, message);
        self.errors.push(ScenarioError { limit: Some(limit), ..error });
    }

    /// What other versions may know, and this one does not yet.
    fn refuse_unknown_yet(&mut self, file: &ScenarioFile) {
        let instead = "until then oracle_default of the chart decides";
        for (place, value, instead) in [
            ("oracle", &file.oracle, instead),
            ("record", &file.record, "checkpoints and `polity sim export` tell what happened"),
        ] {
            if value.is_some() {
                let message = format!("{place}: this version has no {place} yet; {instead}");
                self.report(place, message);
            }
        }
    }

    fn ticks_per_turn(&mut self, ticks: Option<NonZeroU64>) -> u32 {
        let Some(ticks) = ticks else { return TICKS_PER_TURN_DEFAULT };
        let counted = u32::try_from(ticks.get()).ok();
        counted.filter(|ticks| *ticks <= TICKS_PER_TURN_MAX).unwrap_or_else(|| {
            let message = format!(
                "ticks_per_turn must be at most {TICKS_PER_TURN_MAX}, found {ticks}: have more turns"
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

/// A trigger that the world can bring.
fn trigger_of(chart: &Chart, name: &str) -> Result<TriggerId, Fault> {
    if name == TIMEOUT {
        return Err(Fault::Other("timeouts come by themselves and have no rate".to_owned()));
    }
    chart.trigger(name).ok_or_else(|| {
        let triggers = chart.triggers().map(|trigger| chart.trigger_name(trigger).to_owned());
        let allowed = triggers.filter(|trigger| trigger != TIMEOUT).collect();
        Fault::Unknown { what: "trigger", found: name.to_owned(), allowed }
    })
}
