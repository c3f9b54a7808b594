//! `cargo xtask bench`: one table with a line per promise.
//!
//! Benches live in the crates they measure and print a line of JSON for each figure; the program
//! itself is measured here, from the outside.

mod program;
mod service;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::peers;
use crate::run::{cargo, output, step};

/// The benches, by package and name.
const BENCHES: [(&str, &str); 10] = [
    ("polity-model", "transitions"),
    ("polity-store", "journal"),
    ("polity-drivers", "tool_rounds"),
    ("polity-drivers", "masking"),
    ("polity-drivers", "runs"),
    ("polity-engine", "workflows"),
    ("polity-engine", "schedules"),
    ("polity-statechart", "fires"),
    ("polity-simulator", "ticks"),
    ("polity-simulator", "runs"),
];

/// The environment variable that names the Python with LangGraph and Mesa.
const PYTHON: &str = "POLITY_BENCH_PYTHON";

/// One measured promise.
struct Figure {
    what: String,
    measured: String,
    target: String,
    kept: bool,
}

pub(crate) fn bench(quick: bool) -> Result<()> {
    let mut figures = Vec::new();
    let python = if quick { None } else { python() };
    for (package, name) in BENCHES {
        eprintln!("── {package}: {name}");
        let mut command = cargo(&["bench", "--quiet", "--package", package, "--bench", name]);
        if quick {
            command.env("POLITY_BENCH_QUICK", "1");
        }
        if let Some(python) = &python {
            command.env(PYTHON, python);
        }
        for line in output(command)?.lines().filter(|line| line.starts_with('{')) {
            figures.push(figure(line)?);
        }
    }
    step("the program", cargo(&["build", "--release", "--quiet"]))?;
    figures.extend(program::measure(quick)?);
    figures.extend(service::measure(quick)?);
    println!("{}", table(&figures));
    Ok(())
}

/// The Python that has LangGraph and Mesa. Without it the benches skip the comparisons.
fn python() -> Option<PathBuf> {
    let installed = peers::install_for_bench();
    installed
        .inspect_err(|error| eprintln!("── LangGraph and Mesa are not measured: {error:#}"))
        .ok()
}

fn figure(line: &str) -> Result<Figure> {
    let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
    let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
    Ok(Figure {
        what: text("what"),
        measured: text("measured"),
        target: text("target"),
        kept: value["kept"].as_bool().unwrap_or(false),
    })
}

fn table(figures: &[Figure]) -> String {
    let mut text = String::from("| what | measured | target | |\n|---|---|---|---|\n");
    for Figure { what, measured, target, kept } in figures {
        let kept = if *kept { "kept" } else { "missed" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {measured} | {target} | {kept} |");
    }
    text
}
