//! The rules of `lifecycle`: what a scenario does to its population at set turns.

use std::collections::{BTreeMap, HashMap, HashSet};

use polity_statechart::{AgentRequest, Chart};

use super::{Check, start};
use crate::lifecycle::{LifecycleAction, Operation, number_of_turns};
use crate::names;
use crate::scenario::{
    Behaviour, EventFile, GroupFile, ScenarioError, ScenarioFile, TURNS_DEFAULT,
};

/// The agents that there may ever be, as far as a scenario and its chart tell.
struct Known<'a> {
    names: HashSet<&'a str>,
    /// Groups of several, by the name of the group.
    groups: HashMap<&'a str, u64>,
}

impl<'a> Known<'a> {
    fn new(chart: &'a Chart, groups: &'a [GroupFile], files: &'a [EventFile]) -> Self {
        let several =
            groups.iter().filter_map(|group| Some((group.name.as_deref()?, group.count?)));
        let alone = groups.iter().filter(|group| group.count.is_none_or(|count| count == 1));
        let mut names: HashSet<&str> = alone.filter_map(|group| group.name.as_deref()).collect();
        let is_add = |file: &&EventFile| file.operation == Some(Operation::AddAgent);
        names.extend(files.iter().filter(is_add).filter_map(|f| f.target_agent_name.as_deref()));
        names.extend(chart.requests().filter_map(copied));
        Self { names, groups: several.filter(|(_, count)| *count > 1).collect() }
    }

    /// Whether there may be an agent of this name. One that finds its name taken has a number
    /// behind it.
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
            || names::numbered(name).is_some_and(|(stem, number)| {
                self.groups.get(stem).is_some_and(|count| number <= *count) || self.contains(stem)
            })
    }
}

/// The name that an action gives to a copy.
fn copied(request: &AgentRequest) -> Option<&str> {
    match request {
        AgentRequest::Copy { name } => name.as_deref(),
        AgentRequest::Pause { .. } | AgentRequest::Resume { .. } | AgentRequest::Remove { .. } => {
            None
        }
    }
}

impl Check<'_> {
    pub(super) fn events(
        &mut self,
        files: &[EventFile],
        groups: &[GroupFile],
        behaviours: &[Behaviour],
    ) -> BTreeMap<u64, Vec<LifecycleAction>> {
        let known = Known::new(self.chart, groups, files);
        let mut events: BTreeMap<u64, Vec<LifecycleAction>> = BTreeMap::new();
        for (index, file) in files.iter().enumerate() {
            let at = |field: &str| format!("lifecycle[{index}].{field}");
            let turn = self.required(&at("turn"), file.turn);
            let operation = self.required(&at("operation"), file.operation);
            let target = self.required(&at("target_agent_name"), file.target_agent_name.clone());
            let (Some(turn), Some(operation), Some(target_agent_name)) = (turn, operation, target)
            else {
                continue;
            };
            if let Some(fault) = names::fault_of(&target_agent_name) {
                let place = at("target_agent_name");
                self.report(&place, format!("{place}: {fault}"));
            }
            let initiator = file.initiating_agent.as_deref();
            if let Some(fault) = initiator.and_then(names::fault_of) {
                let place = at("initiating_agent");
                self.report(&place, format!("{place}: {fault}"));
            } else if let Some(initiator) = initiator
                && !known.contains(initiator)
            {
                let place = at("initiating_agent");
                self.report(
                    &place,
                    format!(
                        "{place}: there is never an agent \"{initiator}\", neither in the \
                         population nor by lifecycle"
                    ),
                );
            }
            self.initial_state(&at("initial_state"), operation, file, behaviours);
            self.auto_resume_turns(&at("auto_resume_turns"), operation, file);
            events.entry(turn.get()).or_default().push(LifecycleAction {
                operation,
                target_agent_name,
                initiating_agent: file.initiating_agent.clone(),
                initial_state: file.initial_state.clone(),
                auto_resume_turns: file.auto_resume_turns,
            });
        }
        events
    }

    fn initial_state(
        &mut self,
        place: &str,
        operation: Operation,
        file: &EventFile,
        behaviours: &[Behaviour],
    ) {
        match (operation, &file.initial_state) {
            (Operation::AddAgent, None) => {
                let message = "a new agent needs one, {} will do";
                self.report(place, format!("missing field \"{place}\": {message}"));
            }
            (Operation::AddAgent, Some(initial)) => {
                let faults = start(self.chart, behaviours, initial).err();
                for (key, fault) in faults.into_iter().flatten() {
                    self.fault(&format!("{place}.{key}"), fault);
                }
            }
            (Operation::RemoveAgent | Operation::PauseAgent | Operation::ResumeAgent, None) => {}
            (Operation::RemoveAgent | Operation::PauseAgent | Operation::ResumeAgent, Some(_)) => {
                self.out_of_place(place, Operation::AddAgent, operation);
            }
        }
    }

    fn auto_resume_turns(&mut self, place: &str, operation: Operation, file: &EventFile) {
        let Some(turns) = file.auto_resume_turns else { return };
        match operation {
            Operation::PauseAgent => {
                if let Err(reason) = number_of_turns(turns) {
                    self.report(place, format!("{place}: {reason}"));
                }
            }
            Operation::AddAgent | Operation::RemoveAgent | Operation::ResumeAgent => {
                self.out_of_place(place, Operation::PauseAgent, operation);
            }
        }
    }

    fn out_of_place(&mut self, place: &str, only: Operation, found: Operation) {
        let (only, found) = (only.as_str(), found.as_str());
        self.report(place, format!("{place}: only {only} has this, and this is {found}"));
    }
}

impl ScenarioFile {
    /// The entries of `lifecycle` that never happen because the scenario has too few turns, or because
    /// their turn is one of the first that are over already. A run may well be made shorter, so they
    /// are no errors of a run.
    pub fn never_happening(&self, over: u64) -> Vec<ScenarioError> {
        let turns = self.turns.unwrap_or(TURNS_DEFAULT);
        let entries = self.lifecycle.iter().flatten().enumerate();
        let never = entries.filter_map(|(index, file)| {
            let turn = file.turn?.get();
            let why = if turn > turns {
                match turns {
                    1 => "never comes, there is 1 turn".to_owned(),
                    turns => format!("never comes, there are {turns} turns"),
                }
            } else if turn <= over {
                format!("is over, this begins after turn {over}")
            } else {
                return None;
            };
            let place = format!("lifecycle[{index}].turn");
            Some(ScenarioError::new(&place, format!("{place}: turn {turn} {why}")))
        });
        never.collect()
    }
}
