//! CLI agents as real processes, run through the shim.

mod answers;
mod artifacts;
mod fixture;
mod git_commands;
mod json_rpc;
mod recovery;
mod resource_limits;
mod special_files;
mod start_failures;
mod termination;
mod workspaces;
