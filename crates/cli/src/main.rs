//! The `polity` command: flags, wiring, rendering, progress and exit codes. Nothing is decided
//! here; the other crates are put together and their answers shown.

mod app;
mod args;
mod commands;
mod error;
mod exit;
mod home;
mod logging;
mod view;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    logging::start(args.options.verbosity());
    let json = args.options.json;
    match commands::run(args) {
        Ok(exit) => exit.into(),
        Err(error) => {
            error.print(json);
            error.exit().into()
        }
    }
}
