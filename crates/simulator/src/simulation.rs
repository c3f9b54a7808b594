//! A simulation: turns of ticks, and changes of the population between them.

mod agent_requests;
mod restore;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_statechart::{AgentRef, AgentRequest, Chart, ScalarValue};
use serde_json::{Map, Value};

use self::agent_requests::{AgentRequests, REQUESTS_PER_TURN};
use crate::checkpoint::AgentRow;
use crate::error::SimError;
use crate::folder::RunFolder;
use crate::kernel::{self, AgentSerial, AgentSlot, AgentSnapshot, Kernel, SimulationSeed};
use crate::lifecycle::{
    LifecycleAction, LifecycleEvent, LifecycleOperation, PopulationChange, PopulationDraft,
    RequestRuling, RequestSource, RequestVerdict,
};
use crate::population::Population;
use crate::population::draw_key::draw_key;
use crate::scenario::{AgentStart, Scenario};
use crate::warning::{RefusedRequests, RunWarning, WarningLog};

/// The minimum number of gaps for which compacting pays off.
const GAPS_MIN: u64 = 1024;

/// A simulation between two turns.
#[derive(Debug)]
pub struct Simulation {
    scenario: Arc<Scenario>,
    kernel: Kernel,
    population: Population,
    warnings: WarningLog,
    /// The number of visits of each state, in chart order.
    visits: Vec<u64>,
    /// The number of turns so far.
    turn: u64,
    /// The number of agents removed since the kernel was compacted.
    gaps: u64,
    agent_requests: AgentRequests,
    /// The changes of the population in the last turn, if recorded.
    events: Option<Vec<LifecycleEvent>>,
    pool: rayon::ThreadPool,
}

/// An agent that is no longer in the population, but still in the kernel.
struct RemovedAgent {
    slot: AgentSlot,
    serial: AgentSerial,
    name: String,
}

impl Simulation {
    /// Creates the initial population of a scenario. By default there is one thread per core; the
    /// number does not change results.
    pub fn new(scenario: Arc<Scenario>, threads: Option<NonZeroUsize>) -> Result<Self, SimError> {
        let mut simulation = Self::empty(scenario, threads)?;
        let scenario = Arc::clone(&simulation.scenario);
        for (world, value) in &scenario.values {
            simulation.kernel.set_world(*world, value.clone());
        }
        for group in &scenario.groups {
            for _ in 0..group.count {
                let serial = simulation.population.next_serial();
                simulation.add_agent(serial, &group.start)?;
            }
        }
        Ok(simulation)
    }

    /// Creates a simulation without agents and names the groups of the scenario.
    pub(crate) fn empty(
        scenario: Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let (agents, max_agents) = (scenario.agents(), scenario.max_agents);
        if agents > max_agents {
            return Err(SimError::TooManyAgents { agents, max_agents });
        }
        let mut population = Population::new(max_agents, agents);
        let mut first = 0;
        for group in &scenario.groups {
            population.declare_group(&group.name, AgentSerial(first), group.count);
            first += group.count;
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.map_or(0, NonZeroUsize::get))
            .thread_name(|number| format!("simulation-{number}"))
            .build()?;
        let chart = Arc::clone(&scenario.chart);
        let visits = vec![0; chart.states().len()];
        let mut kernel = Kernel::new(chart, scenario.rates()?, SimulationSeed(scenario.seed));
        kernel.count_visits();
        let (warnings, agent_requests) =
            (WarningLog::default(), AgentRequests::new(&scenario.chart));
        Ok(Self {
            scenario,
            kernel,
            population,
            warnings,
            visits,
            turn: 0,
            gaps: 0,
            agent_requests,
            events: None,
            pool,
        })
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the number of turns so far.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Returns the number of agents.
    pub fn len(&self) -> u64 {
        self.population.len()
    }

    /// True if there are no agents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the agents in each state, in chart order.
    pub fn states(&self) -> Vec<(&str, u64)> {
        self.state_names().zip(self.kernel.counts()).collect()
    }

    /// Returns the names of the agents in a state, in order, or `None` for an unknown state.
    pub fn agents_in_state(&self, state: &str) -> Option<Vec<String>> {
        let state = self.scenario.chart.state(state)?;
        let agents = self.population.agents();
        let here = agents.filter(|(_, slot)| self.kernel.state(*slot) == state);
        Some(here.map(|(serial, _)| self.population.name(serial)).collect())
    }

    /// Returns the number of visits of each state, in chart order.
    pub fn visits(&self) -> Vec<(&str, u64)> {
        self.state_names().zip(self.visits.iter().copied()).collect()
    }

    fn state_names(&self) -> impl Iterator<Item = &str> {
        let chart = &*self.scenario.chart;
        chart.states().map(|state| chart.state_name(state))
    }

    /// Returns the names of paused agents, in order.
    pub fn paused(&self) -> Vec<String> {
        let paused = self.population.paused();
        paused.into_iter().map(|serial| self.population.name(serial)).collect()
    }

    /// Returns the warnings so far.
    pub(crate) fn warnings(&self) -> &WarningLog {
        &self.warnings
    }

    /// Lists the warnings so far by turn.
    pub(crate) fn list_warnings(&self) -> Vec<RunWarning> {
        self.warnings.list(self.turn, self.scenario.kernel_ticks())
    }

    /// Returns the number of kernel ticks so far.
    pub(crate) fn tick(&self) -> u64 {
        self.turn * self.scenario.kernel_ticks()
    }

    /// Returns the number of kernel ticks so far, as the kernel counts them.
    fn kernel_tick(&self) -> u32 {
        // A run with more ticks than the counter holds is rejected before it starts.
        u32::try_from(self.tick()).unwrap_or(u32::MAX)
    }

    /// Records changes of the population from now on.
    pub(crate) fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// Returns the changes of the population in the last turn, if recorded.
    pub(crate) fn events(&self) -> &[LifecycleEvent] {
        self.events.as_deref().unwrap_or_default()
    }

    /// Returns the next number behind each base name of agents.
    pub(crate) fn name_numbers(&self) -> BTreeMap<String, u64> {
        self.population.numbers().sorted()
    }

    pub(crate) fn next_serial(&self) -> AgentSerial {
        self.population.next_serial()
    }

    /// Runs the ticks of a turn. [`change_population`](Self::change_population) must follow.
    pub(crate) fn run_ticks(&mut self) {
        let mut next = self.kernel_tick().saturating_add(1);
        let end = next.saturating_add(self.scenario.ticks_per_turn);
        self.turn += 1;
        while next < end {
            let count = self.agent_requests.ticks(self.len()).min(end - next);
            self.kernel.ticks(next, count, &self.pool);
            self.agent_requests.add(self.kernel.take_requests());
            next += count;
        }
        if let Some(round_ends) = self.scenario.round_ends {
            self.kernel.fire_all(round_ends, end, &self.pool);
            self.agent_requests.add(self.kernel.take_requests());
        }
        for (all, some) in self.visits.iter_mut().zip(self.kernel.take_visits()) {
            *all += some;
        }
        self.take_eval_errors(&[]);
    }

    /// Changes the population at the end of a turn. Ends pauses, then handles the requests of
    /// agents, of the scenario and from outside, in this order. Returns the rulings on requests
    /// from outside.
    pub(crate) fn change_population(
        &mut self,
        outside: &[LifecycleAction],
        strict: bool,
    ) -> Result<Vec<RequestRuling<AgentStart>>, SimError> {
        self.events.iter_mut().for_each(Vec::clear);
        for serial in self.population.take_ended_pauses(self.turn) {
            self.with_slot(serial, Kernel::resume);
            if let Some(events) = &mut self.events {
                events.push(LifecycleEvent {
                    operation: LifecycleOperation::ResumeAgent,
                    name: self.population.name(serial),
                    instead_of: None,
                    asked_by: RequestSource::PauseEnded,
                });
            }
        }
        let (asking, mut requests) = self.take_agent_requests();
        let agent_requests = requests.len();
        requests.extend(self.scenario.events.get(&self.turn).into_iter().flatten().cloned());
        let first_outside = requests.len();
        requests.extend_from_slice(outside);
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let (scenario, kernel) = (&*self.scenario, &self.kernel);
        let mut rulings =
            PopulationDraft::new(&self.population).with_agent_requests(agent_requests).rule_all(
                &requests,
                &|index, initial| match asking.get(index) {
                    // An agent can only add copies of itself.
                    Some(slot) => Ok(start_of_copy(&scenario.chart, &kernel.snapshot(*slot))),
                    None => scenario.start(initial),
                },
                strict,
            );
        let mut refused = RefusedRequests::default();
        let mut removed = Vec::new();
        for (index, (request, ruling)) in requests.iter().zip(&mut rulings).enumerate() {
            match ruling.change.take() {
                Some(change) => {
                    self.apply_change(change, &mut removed)?;
                    if let (Some(events), Some(name)) = (&mut self.events, &ruling.name) {
                        events.push(LifecycleEvent {
                            operation: request.operation,
                            name: name.clone(),
                            // A copy never gets the name of its original.
                            instead_of: Some(&request.target_agent_name)
                                .filter(|wanted| *wanted != name)
                                .filter(|wanted| request.initiating_agent.as_ref() != Some(wanted))
                                .cloned(),
                            asked_by: match &request.initiating_agent {
                                Some(agent) if index < agent_requests => {
                                    RequestSource::Agent(agent.clone())
                                }
                                Some(_) | None if index < first_outside => RequestSource::Scenario,
                                Some(_) | None => RequestSource::Outside,
                            },
                        });
                    }
                }
                None if ruling.result.valid => {}
                None => refused.add(request, &ruling.result),
            }
        }
        refused.into_warnings(self.turn).for_each(|warning| self.warnings.add(warning));
        self.exit_removed(removed);
        self.compact_if_sparse();
        Ok(rulings.split_off(first_outside))
    }

    /// Returns the verdict on a request if it came now, after all pending ones.
    pub fn preview_request(
        &self,
        folder: &RunFolder,
        request: &LifecycleAction,
    ) -> Result<RequestVerdict, SimError> {
        let mut requests = folder.pending_requests(self.turn)?;
        requests.push(request.clone());
        let resolve_start = |_: usize, initial: &Map<String, Value>| self.scenario.start(initial);
        let mut rulings =
            PopulationDraft::new(&self.population).rule_all(&requests, &resolve_start, false);
        Ok(rulings.pop().map(RequestRuling::into_verdict).unwrap_or_default())
    }

    /// Applies an accepted change. A removed agent stays in the kernel until
    /// [`exit_removed`](Self::exit_removed).
    fn apply_change(
        &mut self,
        change: PopulationChange<AgentStart>,
        removed: &mut Vec<RemovedAgent>,
    ) -> Result<(), SimError> {
        match change {
            PopulationChange::Add { serial, name, start } => {
                self.population.declare(&name, serial);
                self.add_agent(serial, &start)?;
            }
            PopulationChange::Remove(serial) => {
                let name = self.population.name(serial);
                if let Some(slot) = self.population.remove(serial) {
                    removed.push(RemovedAgent { slot, serial, name });
                }
            }
            PopulationChange::Pause { serial, turns } => {
                self.population.pause(serial, self.turn, turns);
                self.with_slot(serial, Kernel::pause);
            }
            PopulationChange::Resume(serial) => {
                self.population.resume(serial);
                self.with_slot(serial, Kernel::resume);
            }
        }
        Ok(())
    }

    /// Performs the exit actions of removed agents, in agent order, and takes them out of the
    /// kernel. Their requests are dropped: a removed agent does not act.
    fn exit_removed(&mut self, mut removed: Vec<RemovedAgent>) {
        let leaves = |agent: &RemovedAgent| {
            self.scenario.chart.has_exit_actions(self.kernel.state(agent.slot))
        };
        let mut leaving: Vec<AgentSlot> =
            removed.iter().filter(|agent| leaves(agent)).map(|agent| agent.slot).collect();
        if !leaving.is_empty() {
            leaving.sort_unstable();
            self.kernel.exit(&leaving, self.kernel_tick());
            let dropped = self.kernel.take_requests().len();
            if dropped > 0 {
                let reason = format!(
                    "requests of exit actions are dropped if their agent was removed ({dropped} times)"
                );
                self.warnings.add(RunWarning::general(self.turn, reason));
            }
            removed.sort_unstable_by_key(|agent| agent.serial);
            self.take_eval_errors(&removed);
        }
        for RemovedAgent { slot, .. } in &removed {
            self.kernel.remove(*slot);
        }
        self.gaps += removed.len() as u64;
    }

    fn add_agent(&mut self, serial: AgentSerial, start: &AgentStart) -> Result<(), SimError> {
        let AgentStart { state, fields, behaviour } = start;
        let key = draw_key(&self.population.name(serial), self.turn);
        let slot = self.kernel.add(serial, key, *behaviour, *state, fields)?;
        self.population.insert(serial, slot, self.turn);
        Ok(())
    }

    /// Compacts the kernel if there are many gaps.
    fn compact_if_sparse(&mut self) {
        if self.gaps > GAPS_MIN && self.gaps > self.len() / 2 {
            if let Some(moved) = self.kernel.compact() {
                self.population.remap(&moved);
            }
            self.population.compact();
            self.gaps = 0;
        }
    }

    fn with_slot(&mut self, serial: AgentSerial, act: impl FnOnce(&mut Kernel, AgentSlot)) {
        if let Some(slot) = self.population.slot(serial) {
            act(&mut self.kernel, slot);
        }
    }

    /// Takes the requests of agents, with the slots of the requesters.
    fn take_agent_requests(&mut self) -> (Vec<AgentSlot>, Vec<LifecycleAction>) {
        let (agent_requests, dropped) = self.agent_requests.take();
        if dropped > 0 {
            let reason = format!(
                "{dropped} more requests of agents were not looked at: the limit requests_per_turn \
                 is {REQUESTS_PER_TURN}"
            );
            self.warnings.add(RunWarning::general(self.turn, reason));
        }
        agent_requests
            .into_iter()
            .map(|(slot, request)| (slot, self.lifecycle_action(slot, request)))
            .unzip()
    }

    fn lifecycle_action(&self, slot: AgentSlot, request: AgentRequest) -> LifecycleAction {
        let requester = self.population.name(self.kernel.serial(slot));
        let target = |who: AgentRef| match who {
            AgentRef::Requester => requester.clone(),
            AgentRef::Named(name) => name.as_ref().to_owned(),
        };
        let (operation, target, turns) = match request {
            AgentRequest::Pause { who, turns } => {
                (LifecycleOperation::PauseAgent, target(who), turns)
            }
            AgentRequest::Resume { name } => {
                (LifecycleOperation::ResumeAgent, name.as_ref().to_owned(), None)
            }
            AgentRequest::Remove { who } => (LifecycleOperation::RemoveAgent, target(who), None),
            AgentRequest::Copy { name } => {
                let name = target(name.map_or(AgentRef::Requester, AgentRef::Named));
                (LifecycleOperation::AddAgent, name, None)
            }
        };
        LifecycleAction {
            operation,
            target_agent_name: target,
            initial_state: (operation == LifecycleOperation::AddAgent).then(Map::new),
            auto_resume_turns: turns.map(i64::from),
            initiating_agent: Some(requester),
        }
    }

    /// Records guards and actions that could not be evaluated. `removed` has the agents without a
    /// place in the population, by serial.
    fn take_eval_errors(&mut self, removed: &[RemovedAgent]) {
        for failure in self.kernel.take_warnings() {
            let kernel::KernelWarning { text, location, reason, count, serial, tick } = failure;
            let what = match location {
                Some(location) => format!("{location}: guard \"{text}\""),
                None => format!("action \"{text}\""),
            };
            let agent = match removed.binary_search_by_key(&serial, |agent| agent.serial) {
                Ok(index) => removed[index].name.clone(),
                Err(_) => self.population.name(serial),
            };
            let what = format!("{what}: {reason}");
            self.warnings.add_eval_error(u64::from(tick), agent, what, count);
        }
    }

    /// Returns the world values by name.
    pub(crate) fn world(&self) -> Map<String, Value> {
        let chart = &*self.scenario.chart;
        let value = |name: &str| {
            let value = chart.world(name).and_then(|world| self.kernel.world(world));
            value.map_or(Value::Null, ScalarValue::to_json)
        };
        chart.world_values().iter().map(|world| (world.name.clone(), value(&world.name))).collect()
    }

    /// Returns all agents in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = AgentRow> + '_ {
        self.population.agents().map(|(serial, slot)| AgentRow {
            name: self.population.name(serial),
            turn_added: self.population.turn_added(serial),
            auto_resume: self.population.auto_resume(serial, self.turn),
            snapshot: self.kernel.snapshot(slot),
        })
    }
}

fn start_of_copy(chart: &Chart, snapshot: &AgentSnapshot) -> AgentStart {
    let fields = chart.fields().iter().zip(&snapshot.fields);
    let fields =
        fields.filter_map(|(field, value)| Some((chart.field(&field.name)?, value.clone()?)));
    AgentStart { state: snapshot.state, fields: fields.collect(), behaviour: snapshot.behaviour }
}
