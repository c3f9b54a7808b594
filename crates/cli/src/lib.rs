//! The `polity` command: flags, wiring, rendering, progress and exit codes. Nothing is decided
//! here; the other crates are put together and their answers shown.

mod app;
mod args;
mod commands;
mod error;
mod exit;
mod logging;
mod signals;
mod view;
mod warnings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use error::CliError;
use exit::ExitStatus;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    if let Some(ended) = supervise() {
        return ended;
    }
    let args = match args::CommandLine::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
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

/// Supervises another program, if that is what this process was started for. It comes before
/// anything else, so that a program is not kept waiting, and it is not for people to type.
#[cfg(target_os = "linux")]
fn supervise() -> Option<ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let asked =
        args.next().is_some_and(|command| command == polity_drivers::process::SUPERVISE_COMMAND);
    asked.then(|| polity_drivers::process::supervise(args))
}

#[cfg(not(target_os = "linux"))]
fn supervise() -> Option<ExitCode> {
    None
}

/// Prints a usage error, or help.
fn refuse(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if wants_json && error.use_stderr() {
        let text = error.render().to_string();
        let message = text.trim().trim_start_matches("error: ");
        CliError::usage(message).print(true);
        return ExitStatus::Usage.into();
    }
    // Where even that cannot be printed there is no one to tell.
    let _ = error.print();
    if error.use_stderr() { ExitStatus::Usage.into() } else { ExitStatus::Done.into() }
}

/// The JSON Schemas of all kinds of definition files, by kind.
pub fn schemas() -> impl Iterator<Item = (&'static str, serde_json::Value)> {
    polity_host::SchemaKind::all().map(|kind| (kind.as_str(), kind.schema()))
}

/// The declaration of the command line, for the generated reference.
pub fn command() -> clap::Command {
    args::CommandLine::command()
}
