//! What happens next.
//!
//! [`decide`](decide::decide) is a pure function: from a task's state and a command it makes
//! events and effects, or says why not. The [`runtime`] commits the events, performs the effects
//! through [`driver`]s, and brings their outcomes back as commands.

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
mod sealed_input;
pub mod state;
mod tool_turn;
mod workflow;

pub use decide::backoff::RETRY_WAIT_SECONDS_MAX;
pub use history::{checkpoints, comparison, retention};
pub use tool_turn::output_schema::OUTPUT_CORRECTIONS_MAX;
pub use workflow::preview_answers;
