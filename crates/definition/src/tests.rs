//! Tests of definition files: valid ones, and the problems of others.

mod agent;
mod cli;
mod config;
mod fuzz;
mod home;
mod round_trip;
mod schedule;
mod schema;
mod script;
mod source;
mod valid;
mod workflow;
mod workflow_author;

use super::{Home, HomeFile};

/// A home of files, each a path and a text.
fn home<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Home {
    let file = |(path, text): (&str, &str)| HomeFile { path: path.into(), text: Ok(text.into()) };
    Home::parse(files.into_iter().map(file).collect())
}

/// The problems of a home, as people read them.
fn shown(home: &Home) -> Vec<String> {
    home.problems.iter().map(ToString::to_string).collect()
}

/// Checks the problems of one file, shown without its path.
#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    check_in(path, text, [], expected);
}

/// Checks one file of a home that has others too.
#[track_caller]
fn check_in<'a>(
    path: &'a str,
    text: &'a str,
    others: impl IntoIterator<Item = (&'a str, &'a str)>,
    expected: &[&str],
) {
    let home = home(others.into_iter().chain([(path, text)]));
    let found: Vec<String> = home
        .problems
        .iter()
        .map(|problem| problem.to_string().replacen(&format!("{path}:"), "", 1))
        .collect();
    assert_eq!(found, expected, "\n{text}\n{}", found.join("\n"));
}
