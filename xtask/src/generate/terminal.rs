//! The picture of Polity in use: a real terminal session, drawn as SVG.
//!
//! Ids and durations differ from run to run; the picture shows fixed ones in their place.

mod screen;
mod svg;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};

use crate::run::{cargo, output};

/// The commands of the session, with their exit codes.
const SESSION: [(&str, i32); 2] =
    [("polity run newsroom rain", 3), ("polity review approve last --message \"Print it.\"", 0)];

/// The width of the drawn terminal, in characters.
const COLUMNS: usize = 122;

/// Runs the session with the program as it is built now, and returns its picture.
pub(super) fn draw() -> Result<String> {
    let program = build()?;
    let folder = tempfile::tempdir().context("a folder for the session")?;
    let programs = Path::new(&program).parent().context("the program's folder")?;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let run = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("({command}) 2>&1")]).current_dir(folder.path());
        shell.env("PATH", &path).env("CLICOLOR_FORCE", "1").env("POLITY_HOME", folder.path());
        shell.env("POLITY_USER", "ada");
        let done = shell.output().with_context(|| format!("cannot start `{command}`"))?;
        anyhow::Ok((String::from_utf8_lossy(&done.stdout).into_owned(), done.status.code()))
    };
    let (made, code) = run("polity init . --example newsroom")?;
    if code != Some(0) {
        bail!("`polity init` failed: {made}");
    }
    let mut session = String::new();
    for (command, expected) in SESSION {
        let (printed, code) = run(command)?;
        if code != Some(expected) {
            bail!("`{command}` ended with {code:?} and not with {expected}: {printed}");
        }
        // Writing to a String cannot fail.
        let _ = write!(session, "\x1b[36m$\x1b[0m \x1b[1m{command}\x1b[0m\n{printed}");
    }
    let session = with_fixed_values(&session)?;
    Ok(svg::draw(&screen::lay_out(&session, COLUMNS), COLUMNS))
}

/// Builds the program and returns its path.
fn build() -> Result<String> {
    let messages = output(cargo(&[
        "build",
        "--quiet",
        "--package",
        "polity",
        "--bin",
        "polity",
        "--message-format",
        "json",
    ]))?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .context("cargo did not name the program that it built")
}

/// Replaces ids and durations by values that are the same in every run.
fn with_fixed_values(session: &str) -> Result<String> {
    let id = Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")?;
    let session = id.replace_all(session, "7d2c41f0-9b1e-4c57-8a36-5e0f2b9d6c18");
    let duration = Regex::new(r"\d+(\.\d+)? (ms|s)\b")?;
    // The second command repeats the durations of two steps of the first.
    let mut milliseconds = [4, 18, 6, 21, 18, 21].into_iter().cycle();
    let fixed = |_: &Captures<'_>| format!("{} ms", milliseconds.next().unwrap_or_default());
    Ok(duration.replace_all(&session, fixed).into_owned())
}
