//! The cost of running CLI agents: startup, a thousand at once, large output, leaks.
//!
//! This executable is its own shim.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench may panic")]
#![allow(clippy::disallowed_methods, reason = "a bench starts what it measures")]

#[cfg(target_os = "linux")]
mod fixture;
#[cfg(target_os = "linux")]
mod leaks;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod startup;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|role| role == polity_drivers::process::SUPERVISE_COMMAND) {
        return polity_drivers::process::supervise(args);
    }
    let quick = std::env::var_os("POLITY_BENCH_QUICK").is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        startup::measure(quick).await;
        load::measure(quick).await;
        output::measure(quick).await;
        leaks::measure(quick).await;
    });
    ExitCode::SUCCESS
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::SUCCESS
}
