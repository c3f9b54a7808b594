//! The `polity` command: flags, rendering, progress and exit codes. The crate `host` does the work.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "only the module terminal prints")]

mod app;
mod args;
mod client;
mod commands;
mod error;
mod exit;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod logging;
mod signals;
mod terminal;
mod view;
mod warnings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use error::{CliError, exit_status, print_error};
use exit::ExitStatus;
use terminal::tell;
use view::style;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    if let Some(ended) = supervise() {
        return ended;
    }
    terminal::report_panics();
    let args = match args::PolityArgs::try_parse() {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    signals::restore();
    logging::start(args.options.verbosity(), args.command.server_log());
    let json = args.options.json;
    let ended = commands::run(args);
    logging::flush();
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => {
            print_error(&error, json);
            exit_status(&error).into()
        }
    }
}

/// Runs as the process shim if the arguments say so. It comes first, so that children start fast, and
/// is not part of the documented command line.
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
        print_error(&CliError::usage(message), true);
        return ExitStatus::Usage.into();
    }
    if error.use_stderr() {
        // It repeats arguments, so only its first word is styled.
        let text = error.render().to_string();
        match text.strip_prefix("error:") {
            Some(rest) => tell(&format!("{}{rest}", style::error("error:"))),
            None => tell(&text),
        }
        return ExitStatus::Usage.into();
    }
    // Help has no text from elsewhere. An error of the output cannot be reported anywhere.
    let _ = error.print();
    ExitStatus::Done.into()
}

/// The JSON Schemas of all kinds of definition files, by kind.
pub fn schemas() -> impl Iterator<Item = (&'static str, serde_json::Value)> {
    polity_host::SchemaKind::all().map(|kind| (kind.as_str(), kind.schema()))
}

/// The declaration of the command line, for the generated reference.
pub fn command() -> clap::Command {
    args::PolityArgs::command()
}
