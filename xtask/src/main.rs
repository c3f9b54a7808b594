//! The project's own chores: `cargo xtask test`, `peers`, `bench`, `generate`.
#![allow(clippy::disallowed_methods, reason = "chores start programs and read the environment")]

mod bench;
mod generate;
mod house;
mod peers;
mod run;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check formatting, lints, house rules, tests, documentation and generated files
    Test {
        /// Also run what takes long: more random histories, more kills, more agents of others
        #[arg(long)]
        long: bool,
    },
    /// Install the programs of others that the tests talk to
    Peers {
        /// Also those that only the long run of the tests talks to
        #[arg(long)]
        long: bool,
    },
    /// Measure what the project promises and print one table
    Bench {
        /// Measure for a shorter time, to see that everything runs
        #[arg(long)]
        quick: bool,
    },
    /// Write the files that are generated from the source
    Generate {
        /// Only say whether they are up to date
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().chore {
        Chore::Test { long } => test::test(long),
        Chore::Peers { long } => peers::install(long),
        Chore::Bench { quick } => bench::bench(quick),
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
