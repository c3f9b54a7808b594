//! Restores simulations from checkpoints, and replays turns without one.

use std::num::NonZeroUsize;
use std::sync::Arc;

use polity_statechart::{AgentRecord, ScalarValue, WorldId};

use super::Simulation;
use crate::checkpoint::{self, AgentRow, CheckpointHead, CheckpointTarget};
use crate::error::{SimError, ensure};
use crate::folder::RunFolder;
use crate::population::names::NAME_NUMBER_MAX;
use crate::run::RunControl;
use crate::scenario::Scenario;

/// The maximum population size for searching past turns.
const SEARCHED_AGENTS_MAX: u64 = 10_000;

impl Simulation {
    /// Restores a simulation at the end of a turn, by default from the newest checkpoint. Without a
    /// checkpoint of that turn, replays the turns since an earlier one.
    pub fn restore(
        folder: &RunFolder,
        turn: Option<u64>,
        scenario: &Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let mut simulation = Self::empty(Arc::clone(scenario), threads)?;
        simulation.read(folder, turn, scenario)?;
        if let Some(turn) = turn {
            simulation.replay(folder, turn, |_| RunControl::Continue)?;
        }
        Ok(simulation)
    }

    /// Restores a checkpoint that was written with one scenario into another one with the same
    /// chart.
    pub(crate) fn restore_in(
        folder: &RunFolder,
        turn: u64,
        written: &Scenario,
        scenario: &Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let mut simulation = Self::empty(Arc::clone(scenario), threads)?;
        simulation.read(folder, Some(turn), written)?;
        Ok(simulation)
    }

    /// Resets world values to those of the scenario.
    pub(crate) fn change_world(&mut self, names: &[String]) {
        let worlds = self.scenario.chart.world_values();
        let is_named = |world: WorldId| names.contains(&worlds[world.index()].name);
        for (world, value) in self.scenario.values.iter().filter(|(world, _)| is_named(*world)) {
            self.kernel.set_world(*world, value.clone());
        }
    }

    fn read(
        &mut self,
        folder: &RunFolder,
        turn: Option<u64>,
        written: &Scenario,
    ) -> Result<(), SimError> {
        let scenario = Arc::clone(&self.scenario);
        checkpoint::read(folder, turn, [written, &scenario], self)?;
        let (agents, limit) = (self.len(), written.max_agents);
        if agents > limit {
            let (turn, path, _) = folder.checkpoint(turn)?;
            let reason = format!("it has {agents} agents, and max_agents of the run is {limit}");
            return Err(checkpoint::damaged(folder, turn, &path, reason));
        }
        self.population.compact();
        self.check_agent_count()
    }

    fn check_agent_count(&self) -> Result<(), SimError> {
        let (agents, max_agents) = (self.len(), self.scenario.max_agents);
        let fits = agents <= max_agents;
        fits.then_some(()).ok_or(SimError::TooManyAgents { agents, max_agents })
    }

    /// Replays turns until the end of a turn, or until `watch` stops it.
    fn replay(
        &mut self,
        folder: &RunFolder,
        until: u64,
        mut watch: impl FnMut(&Self) -> RunControl,
    ) -> Result<(), SimError> {
        if self.turn >= until {
            return Ok(());
        }
        let strict = folder.record()?.strict;
        let mut answered = folder.answered(self.turn)?;
        while self.turn < until {
            self.run_ticks();
            let actions = answered.remove(&self.turn).unwrap_or_default();
            self.change_population(&actions, strict)?;
            match watch(self) {
                RunControl::Continue | RunControl::Checkpoint => {}
                RunControl::Stop => break,
            }
        }
        Ok(())
    }

    /// Returns the last earlier turn with an agent, as far as checkpoints tell. Large populations
    /// are not searched.
    pub fn last_seen_turn(&self, folder: &RunFolder, name: &str) -> Result<Option<u64>, SimError> {
        let scenario = &self.scenario;
        if self.len().max(scenario.agents()) > SEARCHED_AGENTS_MAX {
            return Ok(None);
        }
        let before = folder.checkpoints()?.into_iter().filter(|turn| *turn < self.turn);
        for turn in before.rev() {
            let mut past = Self::restore(folder, Some(turn), scenario, Some(NonZeroUsize::MIN))?;
            if past.population.find(name).is_none() {
                continue;
            }
            let mut seen = turn;
            past.replay(folder, self.turn, |past| match past.population.find(name) {
                Some(_) => {
                    seen = past.turn;
                    RunControl::Continue
                }
                None => RunControl::Stop,
            })?;
            return Ok(Some(seen));
        }
        Ok(None)
    }

    /// Copies the agents to another scenario with the same chart.
    pub(crate) fn in_scenario(
        &self,
        scenario: &Arc<Scenario>,
        threads: Option<NonZeroUsize>,
    ) -> Result<Self, SimError> {
        let mut simulation = Self::empty(Arc::clone(scenario), threads)?;
        checkpoint::copy_state(self, scenario, &mut simulation).map_err(SimError::Scenario)?;
        simulation.check_agent_count()?;
        Ok(simulation)
    }

    /// Returns the record of an agent, in simulated time.
    pub fn export(&self, name: &str) -> Option<AgentRecord> {
        let serial = self.population.find(name)?;
        let slot = self.population.slot(serial)?;
        let now = (self.kernel.state(slot), self.kernel.ticks_in_state(slot));
        let history = self.kernel.history(slot);
        let time = |tick| self.scenario.time_of_tick(tick).to_string();
        Some(AgentRecord::new(&self.scenario.chart, name, now, history, time))
    }

    /// Returns the names of all agents, in order.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.population.agents().map(|(serial, _)| self.population.name(serial))
    }
}

impl CheckpointTarget for Simulation {
    fn head(&mut self, turn: u64, head: &CheckpointHead) -> Result<(), String> {
        self.turn = turn;
        let tick = self.tick();
        ensure!(
            tick == head.tick && turn <= self.scenario.turns_max(),
            "tick {} is not the end of turn {turn}",
            head.tick
        );
        self.kernel.resume_at(self.kernel_tick());
        self.warnings = head.warnings.clone();
        let unvisited = self.state_names().find(|state| head.visits.get(state).is_none());
        if let Some(state) = unvisited {
            return Err(format!("it does not count the visits of \"{state}\""));
        }
        for (state, count) in &head.visits.0 {
            let state = self.scenario.chart.state(state);
            let state = state.ok_or_else(|| "it counts visits of unknown states".to_owned())?;
            self.visits[state.index()] = *count;
        }
        self.population.reserve_serials(head.next_serial);
        for (base, next) in &head.name_numbers {
            ensure!(
                (1..=NAME_NUMBER_MAX + 1).contains(next),
                "the next number of the name \"{base}\" must be from 1 to {}, found {next}",
                NAME_NUMBER_MAX + 1
            );
            self.population.reserve_numbers(base, *next);
        }
        let chart = Arc::clone(&self.scenario.chart);
        if let Some(missing) =
            chart.world_values().iter().find(|world| !head.world.contains_key(&world.name))
        {
            return Err(format!("world.{} is missing", missing.name));
        }
        for (name, value) in head.world.iter().filter(|(_, value)| !value.is_null()) {
            let world =
                chart.world(name).ok_or_else(|| format!("the chart has no world.{name}"))?;
            let value = ScalarValue::from_json(value);
            let value = value.ok_or_else(|| format!("world.{name} is no value"))?;
            chart.check_world(world, &value).map_err(|reason| format!("world.{reason}"))?;
            self.kernel.set_world(world, value);
        }
        Ok(())
    }

    fn agent(&mut self, row: AgentRow) -> Result<(), String> {
        let AgentRow { name, turn_added, auto_resume, snapshot } = row;
        let (serial, paused) = (snapshot.serial, snapshot.paused);
        ensure!(self.population.find(&name).is_none(), "another agent has the same name");
        ensure!(
            turn_added == 0 || serial.0 >= self.scenario.agents(),
            "it was there from the start, and not added in turn {turn_added}"
        );
        if self.population.name(serial) != name {
            self.population.declare(&name, serial);
        }
        let slot = self.kernel.restore(snapshot).map_err(|error| error.to_string())?;
        self.population.insert(serial, slot, turn_added);
        if paused {
            self.population.pause(serial, self.turn, auto_resume);
        }
        Ok(())
    }
}
