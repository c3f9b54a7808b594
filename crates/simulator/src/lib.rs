//! Simulations of populations whose agents behave by a statechart.
//!
//! - A [`Scenario`](scenario::Scenario) defines the population, its world and its duration, with a
//!   [`Chart`](polity_statechart::Chart) for the behaviour of agents.
//! - A [`SimulationRun`](run::SimulationRun) runs it turn by turn in a
//!   [folder](folder::RunFolder), from which it can be resumed and forked at any turn. Other
//!   processes submit lifecycle requests through the folder.
//! - A [`Simulation`](simulation::Simulation) is the state at the end of a turn.
//! - The [`kernel`] holds the agents and runs their ticks.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use polity_simulator::folder::version::RunVersion;
//! use polity_simulator::folder::{RunFolder, SimulationRecord, RunStatus};
//! use polity_simulator::run::{RunSetup, RunControl, SimulationRun};
//! use polity_simulator::scenario::{Scenario, ScenarioFile};
//! use polity_simulator::simulation::Simulation;
//! use polity_statechart::Chart;
//!
//! let chart = "{name: lamp, states: [off, on], initial: off, transitions: [\
//!     {trigger: press, source: off, target: on}, {trigger: press, source: on, target: off}]}";
//! let text = r#"{"name": "lamps", "chart": "lamp", "turns": 5, "ticks_per_turn": 3,
//!     "population": [{"name": "hall"}], "world": {"rates": [{"trigger": "press", "rate": 1}]}}"#;
//! let file: ScenarioFile = serde_json::from_str(text)?;
//! let scenario = Scenario::new(&file, Arc::new(Chart::from_text(chart)?));
//! let scenario = Arc::new(scenario.map_err(|errors| format!("{errors:?}"))?);
//!
//! let record = SimulationRecord {
//!     run_id: "first".to_owned(),
//!     scenario: scenario.name.clone(),
//!     created_at: jiff::Timestamp::now(),
//!     forked_from: None,
//!     strict: false,
//!     turns: scenario.turns,
//!     status: RunStatus::Running,
//!     summary: None,
//!     version: Some(RunVersion::current()),
//!     request: None,
//! };
//! let setup = RunSetup {
//!     scenario: Arc::clone(&scenario),
//!     scenario_text: text,
//!     chart_text: chart,
//!     threads: None,
//! };
//! # let home = tempfile::tempdir()?;
//! let path = home.path().join("first");
//! let summary = SimulationRun::start(&path, record, &setup)?.run(|_| RunControl::Continue)?;
//! assert_eq!((summary.turns, summary.agents), (5, 1));
//!
//! // Restore the end of turn 3, and run from there to the same result.
//! let folder = RunFolder::open(&path).ok_or("there is no run")?;
//! let restored = Simulation::restore(&folder, Some(3), &scenario, None)?;
//! assert_eq!(restored.agents_in_state("on"), Some(vec!["hall".to_owned()]));
//! let again = SimulationRun::resume(folder, Some(3), None, &scenario, None)?.run(|_| RunControl::Continue)?;
//! assert_eq!(again.digest, summary.digest);
//! # Ok(())
//! # }
//! ```

pub mod error;
pub mod folder;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
pub mod kernel;
pub mod lifecycle;
pub mod run;
pub mod scenario;
pub mod simulation;
pub mod warning;

mod checkpoint;
mod population;
