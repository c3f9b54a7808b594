//! Populations of agents whose behaviour is a statechart.
//!
//! A [`Scenario`](scenario::Scenario) says who there is and what happens to them, with a
//! [`Chart`](polity_statechart::Chart) for what they do. A [`Run`](run::Run) takes it turn by turn to its
//! end, in a [folder](folder::RunFolder) of its own from which it can be resumed and forked at any turn,
//! and where others ask it for changes while it goes on. A [`Simulation`](simulation::Simulation) is what
//! there is at the end of a turn, to be looked at.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use polity_simulator::folder::{RunFolder, RunRecord, RunStatus};
//! use polity_simulator::run::{Beginning, GoOn, Run};
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
//! let record = RunRecord {
//!     run_id: "first".to_owned(),
//!     scenario: scenario.name.clone(),
//!     created_at: jiff::Timestamp::now(),
//!     forked_from: None,
//!     strict: false,
//!     turns: scenario.turns,
//!     status: RunStatus::Running,
//!     summary: None,
//! };
//! let beginning = Beginning {
//!     scenario: Arc::clone(&scenario),
//!     scenario_text: text,
//!     chart_text: chart,
//!     threads: None,
//! };
//! # let home = tempfile::tempdir()?;
//! let path = home.path().join("first");
//! let summary = Run::begin(&path, record, &beginning)?.go(|_| GoOn::Yes)?;
//! assert_eq!((summary.turns, summary.agents), (5, 1));
//!
//! // As it was at the end of turn 3, and once more from there to the same end.
//! let folder = RunFolder::open(&path).ok_or("a run leaves its folder")?;
//! let past = Simulation::restore(&folder, Some(3), &scenario, None)?;
//! assert_eq!(past.agents_in_state("on"), Some(vec!["hall".to_owned()]));
//! let again = Run::resume(folder, Some(3), None, &scenario, None)?.go(|_| GoOn::Yes)?;
//! assert_eq!(again.digest, summary.digest);
//! # Ok(())
//! # }
//! ```

pub mod error;
pub mod folder;
pub mod kernel;
pub mod lifecycle;
pub mod requests;
pub mod run;
pub mod scenario;
pub mod simulation;
pub mod warning;

mod checkpoint;
mod draw_key;
mod files;
mod keeper;
mod names;
mod population;
mod retention;
