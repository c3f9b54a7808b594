//! The rules for the requests of a turn.
//!
//! All requests are checked in order before any is applied, each against the population that the
//! earlier ones lead to.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use serde_json::{Map, Value};

use super::{LifecycleAction, LifecycleOperation, RequestVerdict, ValidationResult};
use crate::error::ensure;
use crate::kernel::AgentSerial;
use crate::population::Population;
use crate::population::names::{self, NameNumbers};

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;

/// Resolves the start of a new agent, from the index of the request and its initial state.
pub(crate) type StartResolver<'a, S> = &'a dyn Fn(usize, &Map<String, Value>) -> Result<S, String>;

#[derive(Debug, Clone)]
pub(crate) struct RequestRuling<S> {
    pub(crate) result: ValidationResult,
    /// The name that the agent has or will have.
    pub(crate) name: Option<String>,
    /// The change, if the request is accepted.
    pub(crate) change: Option<PopulationChange<S>>,
}

impl<S> RequestRuling<S> {
    pub(crate) fn into_verdict(self) -> RequestVerdict {
        RequestVerdict { result: self.result, name: self.name }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PopulationChange<S> {
    Add { serial: AgentSerial, name: String, start: S },
    Remove(AgentSerial),
    Pause { serial: AgentSerial, turns: Option<NonZeroU32> },
    Resume(AgentSerial),
}

/// The population with pending changes.
pub(crate) struct PopulationDraft<'a> {
    population: &'a Population,
    added: HashMap<String, AgentSerial>,
    /// The numbers of names that were added.
    numbers: NameNumbers,
    removed: HashSet<AgentSerial>,
    paused: HashMap<AgentSerial, bool>,
    count: u64,
    next: u64,
    /// The number of requests by agent actions. They come first.
    agent_requests: usize,
    /// The accepted requests of agents: requester, operation, target and turns.
    done: HashSet<(Option<String>, LifecycleOperation, String, Option<i64>)>,
}

impl<'a> PopulationDraft<'a> {
    pub(crate) fn new(population: &'a Population) -> Self {
        let (count, next) = (population.len(), population.next_serial().0);
        Self {
            population,
            added: HashMap::new(),
            numbers: NameNumbers::default(),
            removed: HashSet::new(),
            paused: HashMap::new(),
            count,
            next,
            agent_requests: 0,
            done: HashSet::new(),
        }
    }

    /// Marks the first requests as agent actions. An agent that acted was present and active,
    /// whatever it requested before.
    pub(crate) fn with_agent_requests(self, agent_requests: usize) -> Self {
        Self { agent_requests, ..self }
    }

    /// Rules on all requests of a turn. If `strict`, one invalid request rejects all others.
    pub(crate) fn rule_all<S>(
        mut self,
        requests: &[LifecycleAction],
        resolve_start: StartResolver<'_, S>,
        strict: bool,
    ) -> Vec<RequestRuling<S>> {
        let mut rulings: Vec<RequestRuling<S>> = requests
            .iter()
            .zip(0..)
            .map(|(request, index)| self.rule_deduplicated(request, index, resolve_start))
            .collect();
        let refused = rulings.iter().position(|ruling| !ruling.result.valid);
        if let (true, Some(refused)) = (strict, refused) {
            let LifecycleAction { operation, target_agent_name, .. } = &requests[refused];
            let reason = format!(
                "another request of this turn cannot be done ({} of \"{target_agent_name}\"), and \
                 the run is strict",
                operation.as_str()
            );
            for ruling in &mut rulings {
                ruling.change = None;
                if ruling.result.valid {
                    ruling.result = ValidationResult::refused(reason.clone());
                }
            }
        }
        rulings
    }

    /// Rules on a request. An agent may repeat a request within a turn; repeating an accepted one
    /// is not an error.
    fn rule_deduplicated<S>(
        &mut self,
        request: &LifecycleAction,
        index: usize,
        resolve_start: StartResolver<'_, S>,
    ) -> RequestRuling<S> {
        let ruling = self.rule_one(request, index, resolve_start);
        if index >= self.agent_requests || request.operation == LifecycleOperation::AddAgent {
            return ruling;
        }
        let LifecycleAction { operation, auto_resume_turns, .. } = *request;
        let (who, whom) = (request.initiating_agent.clone(), request.target_agent_name.clone());
        let key = (who, operation, whom, auto_resume_turns);
        if ruling.result.valid {
            self.done.insert(key);
        } else if self.done.contains(&key) {
            let result = ValidationResult { valid: true, ..ValidationResult::default() };
            return RequestRuling { result, name: None, change: None };
        }
        ruling
    }

    fn rule_one<S>(
        &mut self,
        request: &LifecycleAction,
        index: usize,
        resolve_start: StartResolver<'_, S>,
    ) -> RequestRuling<S> {
        let target = request.target_agent_name.as_str();
        let initiator =
            request.initiating_agent.as_deref().filter(|_| index >= self.agent_requests);
        let error = initiator.and_then(|name| self.initiator_error(name));
        // A request of an agent about itself does not apply to a new agent with its name.
        let is_own =
            index < self.agent_requests && request.initiating_agent.as_deref() == Some(target);
        let result = match error.or_else(|| names::name_error(target)) {
            Some(error) => Err(error),
            None => match request.operation {
                LifecycleOperation::AddAgent => self.add(request, index, resolve_start),
                LifecycleOperation::RemoveAgent => self.remove(target, is_own),
                LifecycleOperation::PauseAgent => {
                    self.pause(target, is_own, request.auto_resume_turns)
                }
                LifecycleOperation::ResumeAgent => self.resume(target, is_own),
            },
        };
        match result {
            Err(reason) => {
                let result = ValidationResult::refused(reason);
                RequestRuling { result, name: None, change: None }
            }
            Ok((name, change, mut warnings)) => {
                warnings.extend(ignored_fields(request));
                let result = ValidationResult { valid: true, reason: None, warnings };
                RequestRuling { result, name: Some(name), change: Some(change) }
            }
        }
    }

    fn add<S>(
        &mut self,
        request: &LifecycleAction,
        index: usize,
        resolve_start: StartResolver<'_, S>,
    ) -> RuleResult<S> {
        let wanted = request.target_agent_name.as_str();
        let Some(initial) = &request.initial_state else {
            return Err("initial_state is missing: a new agent needs one, {} will do".to_owned());
        };
        let (count, most) = (self.count, self.population.max_agents());
        ensure!(count < most, "there are {count} agents, and max_agents is {most}");
        let start = resolve_start(index, initial)?;
        let name = match self.find(wanted) {
            Some(_) => self.numbered_name(wanted)?,
            None => wanted.to_owned(),
        };
        let serial = AgentSerial(self.next);
        self.next += 1;
        self.count += 1;
        self.numbers.record(&name);
        self.added.insert(name.clone(), serial);
        let renamed = (name != wanted)
            .then(|| format!("the name \"{wanted}\" is taken, the new agent is \"{name}\""));
        let change = PopulationChange::Add { serial, name: name.clone(), start };
        Ok((name, change, renamed.into_iter().collect()))
    }

    /// Returns the base name of a taken name with the next number.
    fn numbered_name(&self, taken: &str) -> Result<String, String> {
        let base = names::base_name(taken);
        let next = self.population.numbers().next(base).max(self.numbers.next(base));
        ensure!(
            next <= names::NAME_NUMBER_MAX,
            "the name \"{taken}\" is taken, and \"{base}\" has no free number"
        );
        Ok(format!("{base}_{next}"))
    }

    fn remove<S>(&mut self, target: &str, is_own: bool) -> RuleResult<S> {
        let serial = self.find_target(target, is_own)?;
        self.removed.insert(serial);
        self.added.remove(target);
        self.count -= 1;
        let last = (self.count == 0).then(|| "no agents are left".to_owned());
        Ok((target.to_owned(), PopulationChange::Remove(serial), last.into_iter().collect()))
    }

    fn pause<S>(&mut self, target: &str, is_own: bool, turns: Option<i64>) -> RuleResult<S> {
        let serial = self.find_target(target, is_own)?;
        ensure!(!self.is_paused(serial), "\"{target}\" is paused already");
        let turns = turns.map(number_of_turns).transpose()?;
        self.paused.insert(serial, true);
        Ok((target.to_owned(), PopulationChange::Pause { serial, turns }, Vec::new()))
    }

    fn resume<S>(&mut self, target: &str, is_own: bool) -> RuleResult<S> {
        let serial = self.find_target(target, is_own)?;
        ensure!(self.is_paused(serial), "\"{target}\" is not paused");
        self.paused.insert(serial, false);
        Ok((target.to_owned(), PopulationChange::Resume(serial), Vec::new()))
    }

    /// Returns the reason why an agent cannot make requests.
    fn initiator_error(&self, name: &str) -> Option<String> {
        match self.find(name) {
            None => Some(format!("initiating_agent: there is no agent \"{name}\"")),
            Some(serial) if self.is_paused(serial) => {
                Some(format!("initiating_agent: \"{name}\" is paused and cannot ask for anything"))
            }
            Some(_) => None,
        }
    }

    fn find_target(&self, name: &str, is_own: bool) -> Result<AgentSerial, String> {
        let found = if is_own { self.find_existing(name) } else { self.find(name) };
        found.ok_or_else(|| format!("there is no agent \"{name}\""))
    }

    fn find(&self, name: &str) -> Option<AgentSerial> {
        self.added.get(name).copied().or_else(|| self.find_existing(name))
    }

    /// Finds an agent from before this turn.
    fn find_existing(&self, name: &str) -> Option<AgentSerial> {
        self.population.find(name).filter(|serial| !self.removed.contains(serial))
    }

    fn is_paused(&self, serial: AgentSerial) -> bool {
        let changed = self.paused.get(&serial).copied();
        changed.unwrap_or_else(|| self.population.is_paused(serial))
    }
}

/// The name, change and warnings of an accepted request, or the reason of a refusal.
type RuleResult<S> = Result<(String, PopulationChange<S>, Vec<String>), String>;

/// Returns warnings about fields that the operation ignores.
fn ignored_fields(request: &LifecycleAction) -> Vec<String> {
    let mut warnings = Vec::new();
    let only = |field: &str, operation: LifecycleOperation| {
        format!("{field} has a meaning only for {}, and is passed over", operation.as_str())
    };
    if request.initial_state.is_some() && request.operation != LifecycleOperation::AddAgent {
        warnings.push(only("initial_state", LifecycleOperation::AddAgent));
    }
    if request.auto_resume_turns.is_some() && request.operation != LifecycleOperation::PauseAgent {
        warnings.push(only("auto_resume_turns", LifecycleOperation::PauseAgent));
    }
    warnings
}

/// Checks the number of turns of a pause.
pub(crate) fn number_of_turns(turns: i64) -> Result<NonZeroU32, String> {
    u32::try_from(turns).ok().and_then(NonZeroU32::new).ok_or_else(|| {
        format!("auto_resume_turns must be a whole number from 1 to {}, found {turns}", u32::MAX)
    })
}
