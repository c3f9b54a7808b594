//! What happens next.
//!
//! [`decide`](decide::decide) is a pure function: from a task's state and a command it makes
//! events and effects, or says why not. The [`runtime`] commits the events, performs the effects
//! through [`driver`]s, and brings their outcomes back as commands.

pub mod agent_toggles;
pub mod budget;
pub mod checkpoints;
pub mod clock;

pub mod commands;
pub mod comparison;
pub mod decide;
pub mod driver;
pub mod entropy;

pub mod pinned;
pub mod retention;
mod retry;
pub mod runtime;
mod sealed_input;
pub mod state;

pub use retry::RETRY_WAIT_SECONDS_MAX;
