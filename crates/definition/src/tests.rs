//! Tests of valid and invalid definition files.

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
mod workflow_errors;

use super::{Home, HomeFile};

/// A home of files, each with a path and a text.
pub(crate) fn home<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Home {
    let file = |(path, text): (&str, &str)| HomeFile { path: path.into(), text: Ok(text.into()) };
    Home::parse(files.into_iter().map(file).collect())
}

/// The problems of a home, as printed.
fn shown(home: &Home) -> Vec<String> {
    home.problems.iter().map(ToString::to_string).collect()
}

/// The problems of one file without its path, in a home with other files.
fn problems<'a>(
    path: &'a str,
    text: &'a str,
    others: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    let home = home(others.into_iter().chain([(path, text)]));
    let prefix = format!("{path}:");
    shown(&home).iter().map(|problem| problem.replacen(&prefix, "", 1)).collect()
}

/// Lists each case with its problems, for a snapshot.
fn report<'a>(
    cases: impl IntoIterator<Item = &'a str>,
    problems: impl Fn(&str) -> Vec<String>,
) -> String {
    let mut report = String::new();
    for case in cases {
        let found = problems(case);
        report += case.trim_end();
        report += if found.is_empty() { "\n=> valid\n" } else { "\n" };
        report.extend(found.iter().flat_map(|problem| ["=> ", problem, "\n"]));
    }
    report
}
