//! Decides what happens next in a task, and makes it happen.
//!
//! Data flows in one direction:
//! 1. A front end, a timer or a driver's outcome becomes a [`decide::Command`].
//! 2. [`decide::decide`] maps state, command and context to events and effects. It is pure: it reads
//!    no clock, file, environment or random source.
//! 3. The [`runtime`] commits the events and folds them into [`state::TaskState`].
//! 4. Only then it performs the effects through the [`driver`] traits.
//! 5. Their outcomes return as commands.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "only the front end prints")]

pub mod agent_toggles;
pub mod budget;
pub mod clock;
pub mod commands;
pub mod decide;
pub mod driver;
pub mod entropy;
pub mod history {
    //! Read-only queries over recorded tasks.

    pub mod checkpoints;
    pub mod comparison;
    pub mod retention;
}
pub mod pinned;
pub mod runtime;
pub mod schedule;
mod script_output;
mod sealed_input;
pub mod state;
mod tool_turn;
mod workflow;

pub use decide::backoff::RETRY_WAIT_SECONDS_MAX;
pub use history::{checkpoints, comparison, retention};
pub use tool_turn::output_schema::OUTPUT_CORRECTIONS_MAX;
pub use workflow::preview_answers;
