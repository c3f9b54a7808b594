//! Command-line programs, run for real through the shim.

mod answers;
mod artifacts;
mod crashes;
mod ends;
mod limits;
mod refusals;
mod rpc;
mod stage;
mod workspaces;
