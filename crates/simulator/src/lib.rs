//! Populations of agents whose behaviour is a statechart.

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
