//! Which requests of a turn can be done.
//!
//! All requests are looked at in order before any is done, each against the population as it will
//! be when those before it are done.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use serde_json::{Map, Value};

use super::{LifecycleAction, Operation, Opinion, ValidationResult};
use crate::kernel::AgentSerial;
use crate::names;
use crate::population::Population;

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;

/// How a new agent begins, or what is wrong with what was asked for: by the place of the request among
/// all of its turn, and what it says.
pub(crate) type Opening<'a, S> = &'a dyn Fn(usize, &Map<String, Value>) -> Result<S, String>;

/// What is decided about one request.
#[derive(Debug, Clone)]
pub(crate) struct Ruling<S> {
    pub(crate) result: ValidationResult,
    /// The agent that it is about, by the name that it has or will have.
    pub(crate) name: Option<String>,
    /// What to do, if it is to be done.
    pub(crate) change: Option<Change<S>>,
}

impl<S> Ruling<S> {
    /// What is told about it.
    pub(crate) fn into_opinion(self) -> Opinion {
        Opinion { result: self.result, name: self.name }
    }
}

/// What is to be done to the population.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<S> {
    Add { serial: AgentSerial, name: String, start: S },
    Remove(AgentSerial),
    Pause { serial: AgentSerial, turns: Option<NonZeroU32> },
    Resume(AgentSerial),
}

/// The population as it will be.
pub(crate) struct Stage<'a> {
    population: &'a mut Population,
    added: HashMap<String, AgentSerial>,
    gone: HashSet<AgentSerial>,
    paused: HashMap<AgentSerial, bool>,
    count: u64,
    next: u64,
    /// How many of the requests come from agents by their actions. They come first.
    wishes: usize,
    /// What agents asked for that can be done: who, what, to whom and for how long.
    done: HashSet<(Option<String>, Operation, String, Option<i64>)>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(population: &'a mut Population) -> Self {
        let (count, next) = (population.len(), population.next_serial().0);
        Self {
            population,
            added: HashMap::new(),
            gone: HashSet::new(),
            paused: HashMap::new(),
            count,
            next,
            wishes: 0,
            done: HashSet::new(),
        }
    }

    /// The first requests come from agents by their actions. Whoever acted was there and not
    /// paused, whatever it asked for before.
    pub(crate) fn with_wishes(self, wishes: usize) -> Self {
        Self { wishes, ..self }
    }

    /// Decides about all requests of a turn. When `strict`, one that cannot be done takes all the
    /// others with it.
    pub(crate) fn rule<S>(
        mut self,
        requests: &[LifecycleAction],
        opening: Opening<'_, S>,
        strict: bool,
    ) -> Vec<Ruling<S>> {
        let mut rulings: Vec<Ruling<S>> = requests
            .iter()
            .zip(0..)
            .map(|(request, place)| self.rule_in_turn(request, place, opening))
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
            self.population.forget_free_names();
        }
        rulings
    }

    /// Agents may ask for the same thing in several ticks of a turn. Where that has been done already
    /// and needs not be done again, there is nothing to say about it.
    fn rule_in_turn<S>(
        &mut self,
        request: &LifecycleAction,
        place: usize,
        opening: Opening<'_, S>,
    ) -> Ruling<S> {
        let ruling = self.rule_one(request, place, opening);
        if place >= self.wishes || request.operation == Operation::AddAgent {
            return ruling;
        }
        let LifecycleAction { operation, auto_resume_turns, .. } = *request;
        let (who, whom) = (request.initiating_agent.clone(), request.target_agent_name.clone());
        let wish = (who, operation, whom, auto_resume_turns);
        if ruling.result.valid {
            self.done.insert(wish);
        } else if self.done.contains(&wish) {
            let result = ValidationResult { valid: true, ..ValidationResult::default() };
            return Ruling { result, name: None, change: None };
        }
        ruling
    }

    fn rule_one<S>(
        &mut self,
        request: &LifecycleAction,
        place: usize,
        opening: Opening<'_, S>,
    ) -> Ruling<S> {
        let target = request.target_agent_name.as_str();
        let initiator = request.initiating_agent.as_deref().filter(|_| place >= self.wishes);
        let fault = initiator.and_then(|name| self.cannot_ask(name));
        // An agent that speaks of itself does not mean one that has its name after it is gone.
        let is_own = place < self.wishes && request.initiating_agent.as_deref() == Some(target);
        let ruled = match fault.or_else(|| names::fault_of(target)) {
            Some(fault) => Err(fault),
            None => match request.operation {
                Operation::AddAgent => self.add(request, place, opening),
                Operation::RemoveAgent => self.remove(target, is_own),
                Operation::PauseAgent => self.pause(target, is_own, request.auto_resume_turns),
                Operation::ResumeAgent => self.resume(target, is_own),
            },
        };
        match ruled {
            Err(reason) => {
                Ruling { result: ValidationResult::refused(reason), name: None, change: None }
            }
            Ok((name, change, mut warnings)) => {
                warnings.extend(pointless(request));
                let result = ValidationResult { valid: true, reason: None, warnings };
                Ruling { result, name: Some(name), change: Some(change) }
            }
        }
    }

    fn add<S>(
        &mut self,
        request: &LifecycleAction,
        place: usize,
        opening: Opening<'_, S>,
    ) -> Ruled<S> {
        let wanted = request.target_agent_name.as_str();
        let Some(initial) = &request.initial_state else {
            return Err("initial_state is missing: a new agent needs one, {} will do".to_owned());
        };
        let most = self.population.max_agents();
        if self.count >= most {
            return Err(format!("there are {} agents, and max_agents is {most}", self.count));
        }
        let start = opening(place, initial)?;
        let mut free = self.population.take_free_names();
        let name = free.find(wanted, |name| self.find(name).is_some());
        self.population.put_free_names(free);
        if let Some(fault) = names::fault_of(&name) {
            return Err(format!(
                "the name \"{wanted}\" is taken, and with a number behind it {fault}"
            ));
        }
        let serial = AgentSerial(self.next);
        self.next += 1;
        self.count += 1;
        self.added.insert(name.clone(), serial);
        let renamed = (name != wanted)
            .then(|| format!("the name \"{wanted}\" is taken, the new agent is \"{name}\""));
        let change = Change::Add { serial, name: name.clone(), start };
        Ok((name, change, renamed.into_iter().collect()))
    }

    fn remove<S>(&mut self, target: &str, is_own: bool) -> Ruled<S> {
        let serial = self.must_exist(target, is_own)?;
        self.gone.insert(serial);
        self.added.remove(target);
        self.count -= 1;
        self.population.freed(target);
        let last = (self.count == 0).then(|| "no agents are left".to_owned());
        Ok((target.to_owned(), Change::Remove(serial), last.into_iter().collect()))
    }

    fn pause<S>(&mut self, target: &str, is_own: bool, turns: Option<i64>) -> Ruled<S> {
        let serial = self.must_exist(target, is_own)?;
        if self.is_paused(serial) {
            return Err(format!("\"{target}\" is paused already"));
        }
        let turns = turns.map(number_of_turns).transpose()?;
        self.paused.insert(serial, true);
        Ok((target.to_owned(), Change::Pause { serial, turns }, Vec::new()))
    }

    fn resume<S>(&mut self, target: &str, is_own: bool) -> Ruled<S> {
        let serial = self.must_exist(target, is_own)?;
        if !self.is_paused(serial) {
            return Err(format!("\"{target}\" is not paused"));
        }
        self.paused.insert(serial, false);
        Ok((target.to_owned(), Change::Resume(serial), Vec::new()))
    }

    /// Why nothing can be asked for in the name of an agent, if that is so.
    fn cannot_ask(&self, name: &str) -> Option<String> {
        match self.find(name) {
            None => Some(format!("initiating_agent: there is no agent \"{name}\"")),
            Some(serial) if self.is_paused(serial) => {
                Some(format!("initiating_agent: \"{name}\" is paused and cannot ask for anything"))
            }
            Some(_) => None,
        }
    }

    fn must_exist(&self, name: &str, is_own: bool) -> Result<AgentSerial, String> {
        let found = if is_own { self.find_old(name) } else { self.find(name) };
        found.ok_or_else(|| format!("there is no agent \"{name}\""))
    }

    fn find(&self, name: &str) -> Option<AgentSerial> {
        self.added.get(name).copied().or_else(|| self.find_old(name))
    }

    /// An agent that was there before.
    fn find_old(&self, name: &str) -> Option<AgentSerial> {
        self.population.find(name).filter(|serial| !self.gone.contains(serial))
    }

    fn is_paused(&self, serial: AgentSerial) -> bool {
        let changed = self.paused.get(&serial).copied();
        changed.unwrap_or_else(|| self.population.is_paused(serial))
    }
}

/// What can be done, to whom, and what is worth knowing; or why not.
type Ruled<S> = Result<(String, Change<S>, Vec<String>), String>;

/// What a request says and what has no meaning for it.
fn pointless(request: &LifecycleAction) -> Vec<String> {
    let mut warnings = Vec::new();
    let only = |field: &str, operation: Operation| {
        format!("{field} has a meaning only for {}, and is passed over", operation.as_str())
    };
    if request.initial_state.is_some() && request.operation != Operation::AddAgent {
        warnings.push(only("initial_state", Operation::AddAgent));
    }
    if request.auto_resume_turns.is_some() && request.operation != Operation::PauseAgent {
        warnings.push(only("auto_resume_turns", Operation::PauseAgent));
    }
    warnings
}

/// For how many turns an agent can be paused.
pub(crate) fn number_of_turns(turns: i64) -> Result<NonZeroU32, String> {
    u32::try_from(turns).ok().and_then(NonZeroU32::new).ok_or_else(|| {
        format!("auto_resume_turns must be a whole number from 1 to {}, found {turns}", u32::MAX)
    })
}
