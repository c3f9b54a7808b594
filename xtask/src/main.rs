//! The project's own chores: `cargo xtask test`, `peers`, `bench`, `fuzz`, `soak`, `generate`.
#![allow(clippy::disallowed_methods, reason = "chores start programs and read the environment")]

mod bench;
mod fuzz;
mod generate;
mod house;
mod peers;
mod run;
mod served;
mod soak;
mod test;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct XtaskArgs {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check formatting, lints, house rules, tests, documentation and generated files
    Test {
        /// Also run the slow tests: more random histories, more kills, more third-party agents
        #[arg(long)]
        long: bool,
    },
    /// Install the third-party programs that the tests run against
    Peers {
        /// Also install those of the long run
        #[arg(long)]
        long: bool,
    },
    /// Measure every promise and print one table
    Bench {
        /// Measure briefly, to see that every benchmark works
        #[arg(long)]
        quick: bool,
    },
    /// Mutate stored inputs in search of one that breaks a parser
    Fuzz {
        /// The target; all of them without it
        target: Option<String>,
        /// The duration per target
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
    },
    /// Kill and restart a server under mixed work, and check that nothing is lost
    Soak {
        /// The duration
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// The seed of an earlier run, which repeats its choices
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Write the files that are generated from the source
    Generate {
        /// Only check that they are up to date
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    if let Some(outcome) = fuzz::compile_if_wrapper() {
        return outcome;
    }
    let done = match XtaskArgs::parse().chore {
        Chore::Test { long } => test::test(long),
        Chore::Peers { long } => peers::install(long),
        Chore::Bench { quick } => bench::bench(quick),
        Chore::Fuzz { target, minutes } => {
            fuzz::fuzz(target.as_deref(), Duration::from_mins(minutes))
        }
        Chore::Soak { minutes, seed } => soak::soak(Duration::from_mins(minutes), seed),
        Chore::Generate { check } => generate::generate(check),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
