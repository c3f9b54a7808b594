//! The runtime from the outside.

mod faults;
mod lives;
mod processes;
mod queue;
