//! A population that lives: turns of ticks, and what changes between them.

mod past;
mod wishes;

use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_statechart::{AgentRef, AgentRequest, Chart, ScalarValue};
use serde_json::{Map, Value};

use self::wishes::{REQUESTS_PER_TURN, Wishes};
use crate::checkpoint::AgentRow;
use crate::draw_key::draw_key;
use crate::error::SimError;
use crate::folder::RunFolder;
use crate::kernel::{self, AgentImage, AgentSerial, Kernel, Seed, Slot};
use crate::lifecycle::{AskedBy, Change, Done, LifecycleAction, Operation, Opinion, Ruling, Stage};
use crate::population::Population;
use crate::scenario::{Scenario, Start};
use crate::warning::{Refused, Warning, Warnings};

/// The trigger that comes to all at the end of a turn.
const ROUND_ENDS: &str = "round_ends";

/// So few gaps do no harm.
const GAPS_MIN: u64 = 1024;

/// A simulation between two turns.
#[derive(Debug)]
pub struct Simulation {
    scenario: Arc<Scenario>,
    kernel: Kernel,
    population: Population,
    warnings: Warnings,
    /// How often each state was entered, in the order of the chart.
    visits: Vec<u64>,
    /// The turns that are over.
    turn: u64,
    /// How many agents were removed since the kernel last closed its gaps.
    gaps: u64,
    wishes: Wishes,
    /// What was last done to the population, if someone wants to know.
    done: Option<Vec<Done>>,
    pool: rayon::ThreadPool,
}

impl Simulation {
    /// The population of a scenario before its first turn. Without a number of threads there are
    /// as many as the machine has; the number changes no result.
    pub fn new(scenario: Arc<Scenario>, threads: Option<NonZeroUsize>) -> Result<Self, SimError> {
        let mut simulation = Self::empty(scenario, threads)?;
        let scenario = Arc::clone(&simulation.scenario);
        for (world, value) in &scenario.values {
            simulation.kernel.set_world(*world, value.clone());
        }
        for group in &scenario.groups {
            for _ in 0..group.count {
                let serial = simulation.population.next_serial();
                simulation.enter(serial, &group.start)?;
            }
        }
        Ok(simulation)
    }

    /// A simulation without agents, in which the groups of the scenario have their names.
    fn empty(scenario: Arc<Scenario>, threads: Option<NonZeroUsize>) -> Result<Self, SimError> {
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
        let mut kernel = Kernel::new(chart, scenario.rates()?, Seed(scenario.seed));
        kernel.count_visits();
        let (warnings, wishes) = (Warnings::default(), Wishes::new(&scenario.chart));
        Ok(Self {
            scenario,
            kernel,
            population,
            warnings,
            visits,
            turn: 0,
            gaps: 0,
            wishes,
            done: None,
            pool,
        })
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The turns that are over.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// How many agents there are.
    pub fn len(&self) -> u64 {
        self.population.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many agents are in each state, in the order of the chart.
    pub fn states(&self) -> Vec<(&str, u64)> {
        self.state_names().zip(self.kernel.counts()).collect()
    }

    /// The names of the agents in a state, in their order; none if the chart has no such state.
    pub fn agents_in_state(&self, state: &str) -> Option<Vec<String>> {
        let state = self.scenario.chart.state(state)?;
        let agents = self.population.agents();
        let here = agents.filter(|(_, slot)| self.kernel.state(*slot) == state);
        Some(here.map(|(serial, _)| self.population.name(serial)).collect())
    }

    /// How often agents have entered each state, in the order of the chart.
    pub fn visits(&self) -> Vec<(&str, u64)> {
        self.state_names().zip(self.visits.iter().copied()).collect()
    }

    fn state_names(&self) -> impl Iterator<Item = &str> {
        let chart = &*self.scenario.chart;
        chart.states().map(|state| chart.state_name(state))
    }

    /// The names of the paused, in the order of the agents.
    pub fn paused(&self) -> Vec<String> {
        let paused = self.population.paused();
        paused.into_iter().map(|serial| self.population.name(serial)).collect()
    }

    /// What went wrong so far without ending the run.
    pub(crate) fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// The ticks of the kernel that are over.
    pub(crate) fn tick(&self) -> u64 {
        self.turn * self.scenario.kernel_ticks()
    }

    /// Takes note of what is done to the population from now on.
    pub(crate) fn note_done(&mut self) {
        self.done.get_or_insert_default();
    }

    /// What was done to the population at the end of the turn, if that is taken note of.
    pub(crate) fn done(&self) -> &[Done] {
        self.done.as_deref().unwrap_or_default()
    }

    pub(crate) fn next_serial(&self) -> AgentSerial {
        self.population.next_serial()
    }

    /// Lets all agents act for a turn. What changes of the population is for
    /// [`change`](Self::change) to say.
    pub(crate) fn act(&mut self) {
        // A run that would have more ticks than can be counted is refused before it begins.
        let mut next = u32::try_from(self.tick() + 1).unwrap_or(u32::MAX);
        let end = next.saturating_add(self.scenario.ticks_per_turn);
        self.turn += 1;
        while next < end {
            let count = self.wishes.ticks(self.len()).min(end - next);
            self.kernel.ticks(next, count, &self.pool);
            self.wishes.take_in(self.kernel.take_requests());
            next += count;
        }
        if let Some(round_ends) = self.scenario.chart.trigger(ROUND_ENDS) {
            self.kernel.fire_all(round_ends, end, &self.pool);
            self.wishes.take_in(self.kernel.take_requests());
        }
        for (all, some) in self.visits.iter_mut().zip(self.kernel.take_visits()) {
            *all += some;
        }
        self.take_eval_errors();
    }

    /// Changes the population at the end of a turn: pauses that are over end, then the requests of
    /// agents, of the scenario and from outside are looked at in this order, and done. The answers
    /// are to those from outside.
    pub(crate) fn change(
        &mut self,
        outside: &[LifecycleAction],
        strict: bool,
    ) -> Result<Vec<Ruling<Start>>, SimError> {
        self.done.iter_mut().for_each(Vec::clear);
        for serial in self.population.take_due(self.turn) {
            self.with_slot(serial, Kernel::resume);
            if let Some(done) = &mut self.done {
                let (operation, name) = (Operation::ResumeAgent, self.population.name(serial));
                done.push(Done { operation, name, instead_of: None, asked_by: AskedBy::Time });
            }
        }
        let (asking, mut requests) = self.wishes();
        let wishes = requests.len();
        requests.extend(self.scenario.events.get(&self.turn).into_iter().flatten().cloned());
        let first_outside = requests.len();
        requests.extend_from_slice(outside);
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let (scenario, kernel) = (&*self.scenario, &self.kernel);
        let mut rulings = Stage::new(&mut self.population).with_wishes(wishes).rule(
            &requests,
            &|place, initial| match asking.get(place) {
                // What agents want to add are copies of themselves.
                Some(slot) => Ok(like(&scenario.chart, &kernel.image(*slot))),
                None => scenario.start(initial),
            },
            strict,
        );
        let mut refused = Refused::default();
        for (place, (request, ruling)) in requests.iter().zip(&mut rulings).enumerate() {
            match ruling.change.take() {
                Some(change) => {
                    self.settle(change)?;
                    if let (Some(done), Some(name)) = (&mut self.done, &ruling.name) {
                        done.push(Done {
                            operation: request.operation,
                            name: name.clone(),
                            // A copy of an agent never gets the very name of that.
                            instead_of: Some(&request.target_agent_name)
                                .filter(|wanted| *wanted != name)
                                .filter(|wanted| request.initiating_agent.as_ref() != Some(wanted))
                                .cloned(),
                            asked_by: match &request.initiating_agent {
                                Some(agent) if place < wishes => AskedBy::Agent(agent.clone()),
                                Some(_) | None if place < first_outside => AskedBy::Scenario,
                                Some(_) | None => AskedBy::Outside,
                            },
                        });
                    }
                }
                None if ruling.result.valid => {}
                None => refused.add(request, &ruling.result),
            }
        }
        refused.into_warnings(self.turn).for_each(|warning| self.warnings.add(warning));
        self.close_gaps();
        Ok(rulings.split_off(first_outside))
    }

    /// What would be said about a request if it came now, behind those that wait in the folder.
    pub fn consider(
        &mut self,
        folder: &RunFolder,
        request: &LifecycleAction,
    ) -> Result<Opinion, SimError> {
        let mut requests = folder.waiting(self.turn)?;
        requests.push(request.clone());
        let scenario = Arc::clone(&self.scenario);
        let opening = |_: usize, initial: &Map<String, Value>| scenario.start(initial);
        let mut rulings = Stage::new(&mut self.population).rule(&requests, &opening, false);
        self.population.forget_free_names();
        Ok(rulings.pop().map(Ruling::into_opinion).unwrap_or_default())
    }

    /// Does what was decided about a request.
    fn settle(&mut self, change: Change<Start>) -> Result<(), SimError> {
        match change {
            Change::Add { serial, name, start } => {
                self.population.declare(&name, serial);
                self.enter(serial, &start)?;
            }
            Change::Remove(serial) => {
                if let Some(slot) = self.population.leave(serial) {
                    self.kernel.remove(slot);
                    self.gaps += 1;
                }
            }
            Change::Pause { serial, turns } => {
                self.population.pause(serial, self.turn, turns);
                self.with_slot(serial, Kernel::pause);
            }
            Change::Resume(serial) => {
                self.population.resume(serial);
                self.with_slot(serial, Kernel::resume);
            }
        }
        Ok(())
    }

    fn enter(&mut self, serial: AgentSerial, start: &Start) -> Result<(), SimError> {
        let Start { state, fields, behaviour } = start;
        let key = draw_key(&self.population.name(serial), self.turn);
        let slot = self.kernel.add(serial, key, *behaviour, *state, fields)?;
        self.population.enter(serial, slot, self.turn);
        Ok(())
    }

    /// Closes the gaps that removed agents left, when there are so many that it pays.
    fn close_gaps(&mut self) {
        if self.gaps > GAPS_MIN && self.gaps > self.len() / 2 {
            if let Some(moved) = self.kernel.compact() {
                self.population.follow(&moved);
            }
            self.population.forget_the_gone();
            self.gaps = 0;
        }
    }

    fn with_slot(&mut self, serial: AgentSerial, act: impl FnOnce(&mut Kernel, Slot)) {
        if let Some(slot) = self.population.slot(serial) {
            act(&mut self.kernel, slot);
        }
    }

    /// What agents have asked for by their actions, and which ones.
    fn wishes(&mut self) -> (Vec<Slot>, Vec<LifecycleAction>) {
        let (wishes, left_out) = self.wishes.take();
        if left_out > 0 {
            let (turn, operation, target_agent_name) = (self.turn, None, None);
            let reason = format!(
                "{left_out} more requests of agents were not looked at: the limit requests_per_turn \
                 is {REQUESTS_PER_TURN}"
            );
            self.warnings.add(Warning { turn, operation, target_agent_name, reason });
        }
        wishes.into_iter().map(|(slot, wish)| (slot, self.wish(slot, wish))).unzip()
    }

    fn wish(&self, slot: Slot, wish: AgentRequest) -> LifecycleAction {
        let myself = self.population.name(self.kernel.serial(slot));
        let target = |who: AgentRef| match who {
            AgentRef::Requester => myself.clone(),
            AgentRef::Named(name) => name.as_ref().to_owned(),
        };
        let mut action = match wish {
            AgentRequest::Pause { who, turns } => LifecycleAction {
                auto_resume_turns: turns.map(i64::from),
                ..LifecycleAction::new(Operation::PauseAgent, target(who))
            },
            AgentRequest::Resume { name } => LifecycleAction::new(Operation::ResumeAgent, &*name),
            AgentRequest::Remove { who } => {
                LifecycleAction::new(Operation::RemoveAgent, target(who))
            }
            AgentRequest::Copy { name } => LifecycleAction {
                initial_state: Some(Map::new()),
                ..LifecycleAction::new(
                    Operation::AddAgent,
                    name.map_or_else(|| myself.clone(), |name| name.as_ref().to_owned()),
                )
            },
        };
        action.initiating_agent = Some(myself.clone());
        action
    }

    /// Takes note of guards and actions that could not be evaluated.
    fn take_eval_errors(&mut self) {
        for failure in self.kernel.take_warnings() {
            let kernel::Warning { text, place, reason, count, serial, tick: _ } = failure;
            let what = match place {
                Some(place) => format!("{place}: guard \"{text}\""),
                None => format!("action \"{text}\""),
            };
            let agent = self.population.name(serial);
            self.warnings.fail(self.turn, agent, format!("{what}: {reason}"), count);
        }
    }

    /// The values of the world by name.
    pub(crate) fn world(&self) -> Map<String, Value> {
        let chart = &*self.scenario.chart;
        let value = |name: &str| {
            let value = chart.world(name).and_then(|world| self.kernel.world(world));
            value.map_or(Value::Null, ScalarValue::to_json)
        };
        chart.world_values().iter().map(|world| (world.name.clone(), value(&world.name))).collect()
    }

    /// All agents in their order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = AgentRow> + '_ {
        self.population.agents().map(|(serial, slot)| AgentRow {
            name: self.population.name(serial),
            turn_added: self.population.turn_added(serial),
            auto_resume: self.population.auto_resume(serial, self.turn),
            image: self.kernel.image(slot),
        })
    }
}

/// How one begins that is like an agent.
fn like(chart: &Chart, image: &AgentImage) -> Start {
    let fields = chart.fields().iter().zip(&image.fields);
    let fields =
        fields.filter_map(|(field, value)| Some((chart.field(&field.name)?, value.clone()?)));
    Start { state: image.state, fields: fields.collect(), behaviour: image.behaviour }
}
