//! Checks of `lifecycle`: scheduled changes of the population.

use std::collections::{BTreeMap, HashMap, HashSet};

use polity_statechart::{AgentRequest, Chart};

use super::{ScenarioChecker, start};
use crate::lifecycle::{LifecycleAction, LifecycleOperation, number_of_turns};
use crate::population::names;
use crate::scenario::{
    Behaviour, EventFile, GroupFile, ScenarioError, ScenarioFile, TURNS_DEFAULT,
};

/// The agents that can ever exist, according to the scenario and its chart.
struct PossibleAgents<'a> {
    names: HashSet<&'a str>,
    /// The groups with several agents, by name.
    groups: HashMap<&'a str, u64>,
    /// The base names of agents that may be added with a number.
    bases: HashSet<&'a str>,
}

impl<'a> PossibleAgents<'a> {
    fn new(chart: &'a Chart, groups: &'a [GroupFile], files: &'a [EventFile]) -> Self {
        let several =
            groups.iter().filter_map(|group| Some((group.name.as_deref()?, group.count?)));
        let alone = groups.iter().filter(|group| group.count.is_none_or(|count| count == 1));
        let mut names: HashSet<&str> = alone.filter_map(|group| group.name.as_deref()).collect();
        let is_add = |file: &&EventFile| file.operation == Some(LifecycleOperation::AddAgent);
        names.extend(files.iter().filter(is_add).filter_map(|f| f.target_agent_name.as_deref()));
        names.extend(chart.requests().filter_map(copied));
        let groups: HashMap<&str, u64> = several.filter(|(_, count)| *count > 1).collect();
        let mut bases: HashSet<&str> = names.iter().map(|name| names::base_name(name)).collect();
        if chart.requests().any(|request| matches!(request, AgentRequest::Copy { name: None })) {
            bases.extend(groups.keys());
        }
        Self { names, groups, bases }
    }

    /// True if an agent with this name can exist. A name that is taken gets a number.
    fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
            || names::split_number(name).is_some_and(|(base, number)| {
                self.groups.get(base).is_some_and(|count| number <= *count)
                    || self.bases.contains(base)
            })
    }
}

/// Returns the name that an action gives to a copy.
fn copied(request: &AgentRequest) -> Option<&str> {
    match request {
        AgentRequest::Copy { name } => name.as_deref(),
        _ => None,
    }
}

impl ScenarioChecker<'_> {
    pub(super) fn events(
        &mut self,
        files: &[EventFile],
        groups: &[GroupFile],
        behaviours: &[Behaviour],
    ) -> BTreeMap<u64, Vec<LifecycleAction>> {
        let known = PossibleAgents::new(self.chart, groups, files);
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
            if let Some(problem) = names::name_error(&target_agent_name) {
                self.report_at(&at("target_agent_name"), &problem);
            }
            let initiator = file.initiating_agent.as_deref();
            if let Some(problem) = initiator.and_then(names::name_error) {
                self.report_at(&at("initiating_agent"), &problem);
            } else if let Some(initiator) = initiator.filter(|name| !known.contains(name)) {
                let message = format!(
                    "there is no agent \"{initiator}\", neither in the population nor by lifecycle"
                );
                self.report_at(&at("initiating_agent"), &message);
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
        location: &str,
        operation: LifecycleOperation,
        file: &EventFile,
        behaviours: &[Behaviour],
    ) {
        match (operation, &file.initial_state) {
            (LifecycleOperation::AddAgent, None) => {
                let message = "a new agent needs one, {} will do";
                self.report(location, format!("missing field \"{location}\": {message}"));
            }
            (LifecycleOperation::AddAgent, Some(initial)) => {
                let problems = start(self.chart, behaviours, initial).err();
                for (key, problem) in problems.into_iter().flatten() {
                    self.problem(&format!("{location}.{key}"), problem);
                }
            }
            (_, None) => {}
            (_, Some(_)) => {
                self.report_misplaced(location, LifecycleOperation::AddAgent, operation);
            }
        }
    }

    fn auto_resume_turns(
        &mut self,
        location: &str,
        operation: LifecycleOperation,
        file: &EventFile,
    ) {
        let Some(turns) = file.auto_resume_turns else { return };
        if operation != LifecycleOperation::PauseAgent {
            self.report_misplaced(location, LifecycleOperation::PauseAgent, operation);
        } else if let Err(reason) = number_of_turns(turns) {
            self.report_at(location, &reason);
        }
    }

    fn report_misplaced(
        &mut self,
        location: &str,
        only: LifecycleOperation,
        found: LifecycleOperation,
    ) {
        let (only, found) = (only.as_str(), found.as_str());
        self.report_at(location, &format!("only {only} has this field, and this is {found}"));
    }
}

impl ScenarioFile {
    /// Returns errors for entries of `lifecycle` that never happen, because the scenario has too
    /// few turns or their turn is over. They are not errors of a run, which may be shorter.
    pub fn unreachable_events(&self, over: u64) -> Vec<ScenarioError> {
        let turns = self.turns.unwrap_or(TURNS_DEFAULT);
        let entries = self.lifecycle.iter().flatten().enumerate();
        let never = entries.filter_map(|(index, file)| {
            let turn = file.turn?.get();
            let why = if turn > turns {
                match turns {
                    1 => "does not exist: there is 1 turn".to_owned(),
                    turns => format!("does not exist: there are {turns} turns"),
                }
            } else if turn <= over {
                format!("has already run: this begins after turn {over}")
            } else {
                return None;
            };
            let location = format!("lifecycle[{index}].turn");
            Some(ScenarioError::new(&location, format!("{location}: turn {turn} {why}")))
        });
        never.collect()
    }
}
