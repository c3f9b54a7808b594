//! The cost of tool rounds: a single one, many agents at once, and a long conversation.
//!
//! The model answers over HTTP and the tool over pipes. Both are this executable, started as
//! separate processes, so that their cost is not counted.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench starts what it measures")]

mod harness;
mod langgraph;
mod load;
mod long_conversation;
mod measure;
mod retry;
mod rounds;
mod servers;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
use polity_drivers::process;
use servers::{MODEL_SERVER, TOOL_SERVER};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        #[cfg(target_os = "linux")]
        Some(role) if role == process::SUPERVISE_COMMAND => return process::supervise(args),
        Some(role) if role == MODEL_SERVER => servers::serve_model(),
        Some(role) if role == TOOL_SERVER => servers::serve_tools(),
        Some(_) | None => {
            let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
            let round = rounds::measure(quick);
            langgraph::compare(quick, round);
            load::measure(quick);
            long_conversation::measure(quick);
            retry::measure(quick);
        }
    }
    ExitCode::SUCCESS
}
