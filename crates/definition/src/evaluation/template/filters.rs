//! Checks that every filter of a template exists. The template engine itself would fail only when
//! it renders, which may be after hours of work.

use minijinja::{Environment, ErrorKind};

use super::reader::codes;
use crate::{did_you_mean, nearest};

/// The filters that the environment has.
#[rustfmt::skip]
const FILTERS: [&str; 49] = [
    "abs", "attr", "batch", "bool", "capitalize", "chain", "count", "d", "default", "dictsort",
    "e", "escape", "first", "float", "format", "groupby", "indent", "int", "items", "join", "last",
    "length", "lines", "list", "lower", "map", "max", "min", "pprint", "reject", "rejectattr",
    "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort", "split",
    "steps", "string", "sum", "title", "tojson", "trim", "unique", "upper", "zip",
];

/// Fails with the first unknown filter.
pub(super) fn check(text: &str, environment: &Environment<'_>) -> Result<(), String> {
    for code in codes(text) {
        for name in named(code) {
            if !exists(name, environment) {
                return Err(unknown(name));
            }
        }
    }
    Ok(())
}

fn exists(name: &str, environment: &Environment<'_>) -> bool {
    let text = format!("'' | {name}");
    let used = environment.compile_expression(&text);
    let tried = used.and_then(|used| used.eval(()));
    !tried.is_err_and(|error| error.kind() == ErrorKind::UnknownFilter)
}

fn unknown(name: &str) -> String {
    let rest = nearest(name, FILTERS).map_or_else(
        || {
            "; there are steps and those of \
             https://docs.rs/minijinja/latest/minijinja/filters/"
                .to_owned()
        },
        did_you_mean,
    );
    format!("there is no filter \"{name}\"{rest}")
}

/// The names after a bar, outside string literals.
fn named(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut quote = None;
    for (place, c) in code.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '|') => {
                let after = code[place + 1..].trim_start();
                let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                names.push(&after[..end.unwrap_or(after.len())]);
            }
            (Some(_) | None, _) => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_that_is_suggested_exists() {
        for name in FILTERS {
            assert!(exists(name, &super::super::ENVIRONMENT), "{name}");
        }
        assert!(!exists("uper", &super::super::ENVIRONMENT));
    }

    #[test]
    fn finds_filters_outside_string_literals() {
        for (code, names) in [
            (" input | upper ", vec!["upper"]),
            ("{ last|default('a | b')|replace(\"|\", '-') }", vec!["default", "replace"]),
            ("input ~ '|'", vec![]),
        ] {
            assert_eq!(named(code), names, "{code}");
        }
    }
}
