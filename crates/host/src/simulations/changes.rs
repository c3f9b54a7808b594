//! Changes of a scenario for one run.

use std::sync::Arc;

use polity_definition::{ExternalDocument, nearest};
use polity_host::simulations::{LoadedScenario, complaint_from};
use polity_simulator::scenario::{
    ScalingError, Scenario, ScenarioError, ScenarioFile, ScenarioLimit,
};
use serde_json::{Map, Value};

use crate::commands::set_option;
use crate::error::CliError;

/// The requested changes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScenarioChanges<'a> {
    pub(super) turns: Option<u64>,
    pub(super) agents: Option<u64>,
    pub(super) seed: Option<u64>,
    /// The turn after which the run starts.
    pub(super) after: u64,
    pub(super) set: &'a [String],
}

/// An example of a change, for hints.
const EXAMPLE: &str = "max_agents=100";

/// The fields that a run cannot change, with the alternative.
const FIXED_IN_RUN: [(&str, &str); 2] = [("name", OTHER_SCENARIO), ("chart", OTHER_SCENARIO)];

/// The fields that a fork cannot change because its agents and its past exist, with the alternative.
const FIXED_IN_FORK: [(&str, &str); 6] = [
    ("name", OTHER_SCENARIO),
    ("chart", OTHER_SCENARIO),
    (
        "population",
        "a fork keeps the agents of the original run; change them with `polity sim lifecycle` or \
         lifecycle in the scenario",
    ),
    ("ticks_per_turn", PAST_TIME),
    ("start_time", PAST_TIME),
    ("tick_seconds", PAST_TIME),
];

const OTHER_SCENARIO: &str = "write another scenario, or edit this one";
const PAST_TIME: &str =
    "some of its turns have already run; start a new run with `polity sim run` and --set";

/// Applies changes to a scenario.
pub(super) fn apply_changes(
    read: &LoadedScenario,
    changes: ScenarioChanges<'_>,
) -> Result<LoadedScenario, CliError> {
    let mut document = document_of(&read.file)?;
    let mut applied = Vec::new();
    for change in changes.set {
        let (path, value) = set_option::change(change, EXAMPLE)?;
        let place = write_at_path(&mut document, path, value)?;
        applied.push(AppliedChange { place, option: format!("--set {change}") });
    }
    for (field, value) in [("turns", changes.turns), ("seed", changes.seed)] {
        if let (Some(value), Some(fields)) = (value, document.as_object_mut()) {
            fields.insert(field.to_owned(), value.into());
            applied.push(AppliedChange {
                place: field.to_owned(),
                option: format!("--{field} {value}"),
            });
        }
    }
    if let Some(agents) = changes.agents {
        applied.push(AppliedChange {
            place: "population".to_owned(),
            option: format!("--agents {agents}"),
        });
    }
    let name = &read.scenario.name;
    let mut document = ExternalDocument::<ScenarioFile>::from_text(name, &document.to_string());
    let invalid = |document: ExternalDocument<ScenarioFile>| invalid(name, &applied, document);
    let Some(mut file) = document.content.take().filter(|_| document.is_clean()) else {
        return Err(invalid(document));
    };
    if let Some(agents) = changes.agents {
        scale(&mut file, agents)?;
    }
    // A shorter run may drop later entries of the file, but not those that a flag asks for.
    let never = file.unreachable_events(changes.after).into_iter();
    let asked_for = |error: &ScenarioError| {
        let entry = error.location.trim_end_matches(".turn");
        applied.iter().any(|applied| applied.covers(entry))
    };
    let never: Vec<ScenarioError> = never.filter(asked_for).collect();
    if !never.is_empty() {
        for error in never {
            document.report(complaint_from(error));
        }
        return Err(invalid(document));
    }
    match Scenario::new(&file, Arc::clone(&read.chart.chart)) {
        Ok(scenario) => Ok(LoadedScenario { scenario, file, chart: read.chart.clone() }),
        Err(errors) => {
            let over = errors.iter().find_map(|error| Some((error.limit?, &error.message)));
            match over {
                Some((ScenarioLimit::MaxAgents, message)) => {
                    return Err(CliError::over_limit("limit_max_agents", message)
                        .hint("--set max_agents=N raises it for this run"));
                }
                Some((ScenarioLimit::Agents, message)) => {
                    return Err(CliError::over_limit("limit_agents", message)
                        .hint("no population can be larger; use fewer agents"));
                }
                Some((ScenarioLimit::Turns, message)) => {
                    return Err(CliError::over_limit("limit_turns", message)
                        .hint("use fewer turns, or fewer ticks per turn"));
                }
                None => {}
            }
            for error in errors {
                document.report(complaint_from(error));
            }
            Err(invalid(document))
        }
    }
}

/// An applied change.
struct AppliedChange {
    /// The path of the value, such as `world.rates[0].rate`.
    place: String,
    /// The option as it was typed.
    option: String,
}

impl AppliedChange {
    /// True if a problem at this path is caused by the change.
    fn covers(&self, place: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        within(place, &self.place) || within(&self.place, place)
    }
}

/// The error for a scenario that is not valid with the changes, naming those at fault.
fn invalid(
    name: &str,
    applied: &[AppliedChange],
    document: ExternalDocument<ScenarioFile>,
) -> CliError {
    let problems = document.into_problems();
    let is_at_fault =
        |applied: &&AppliedChange| problems.iter().any(|problem| applied.covers(&problem.field));
    let mut options: Vec<&str> =
        applied.iter().filter(is_at_fault).map(|applied| applied.option.as_str()).collect();
    if options.is_empty() {
        options = applied.iter().map(|applied| applied.option.as_str()).collect();
    }
    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let message = format!(
        "the scenario \"{name}\" is not valid with {}: {}",
        options.join(" "),
        messages.join("; ")
    );
    let error = CliError::invalid(message, Vec::new());
    let first = problems.iter().find_map(|problem| {
        let meant = problem.suggestion.as_ref().map(|near| format!("did you mean \"{near}\"?"));
        meant.or_else(|| problem.allowed.as_ref().map(|allowed| format!("allowed: {allowed}")))
    });
    error.hint(first.unwrap_or_else(|| "`polity schema scenario` lists the fields".to_owned()))
}

/// The operation that decides which fields are fixed.
#[derive(Debug, Clone, Copy)]
pub(super) enum FixedFields {
    InRun,
    InFork,
}

/// Rejects changes of fixed fields.
pub(super) fn reject_fixed_fields(changes: &[String], fixed: FixedFields) -> Result<(), CliError> {
    let (fixed, what) = match fixed {
        FixedFields::InRun => (&FIXED_IN_RUN[..], "run"),
        FixedFields::InFork => (&FIXED_IN_FORK[..], "fork"),
    };
    match fixed.iter().find(|(name, _)| sets_field(changes, name)) {
        Some((name, instead)) => {
            let message = format!("\"{name}\" cannot be changed in a {what}");
            Err(CliError::usage(message).hint(*instead))
        }
        None => Ok(()),
    }
}

/// True if a change is to this field or to a part of it. Unreadable changes fail when they are applied.
fn sets_field(changes: &[String], field: &str) -> bool {
    let path =
        |change: &String| set_option::change(change, EXAMPLE).ok().map(|(path, _)| path.to_owned());
    changes.iter().filter_map(path).any(|path| steps(&path).next() == Some(field))
}

/// The world values of the scenario that the changes set.
pub(super) fn values_set(changes: &[String], file: &ScenarioFile) -> Vec<String> {
    let values = file.world.as_ref().and_then(|world| world.values.as_ref());
    let is_set = |name: &&String| {
        changes.iter().filter_map(|change| set_option::change(change, EXAMPLE).ok()).any(
            |(path, _)| {
                let mut steps = steps(path);
                ["world", "values", name]
                    .iter()
                    .all(|step| steps.next().is_none_or(|its| its == *step))
            },
        )
    };
    values.into_iter().flatten().map(|(name, _)| name).filter(is_set).cloned().collect()
}

/// The scenario as JSON text for the run folder.
pub(super) fn text_of(file: &ScenarioFile) -> Result<String, CliError> {
    serde_json::to_string_pretty(&document_of(file)?).map_err(|error| unwritable(&error))
}

fn document_of(file: &ScenarioFile) -> Result<Value, CliError> {
    serde_json::to_value(file).map(without_nulls).map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> CliError {
    CliError::usage(format!("the scenario cannot be written: {error}"))
}

/// Removes null fields.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

/// The segments of a path such as `world.rates.0.rate` or `world.rates[0].rate`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty())
}

/// Writes a value at a path, creating missing objects, and returns the normalized path.
fn write_at_path(document: &mut Value, path: &str, value: Value) -> Result<String, CliError> {
    let mut here = document;
    let mut place = String::new();
    for step in steps(path) {
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
        here = match here {
            Value::Object(fields) => {
                place.push_str(if place.is_empty() { "" } else { "." });
                place.push_str(step);
                fields.entry(step).or_insert(Value::Null)
            }
            Value::Array(items) => {
                let index = find_item(items, step, path)?;
                place = format!("{place}[{index}]");
                &mut items[index]
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let message =
                    format!("\"{path}\": the value there is neither a mapping nor a list");
                return Err(CliError::usage(message));
            }
        };
    }
    *here = value;
    Ok(place)
}

/// The index of a list item, given its index, name or trigger.
fn find_item(items: &[Value], called: &str, path: &str) -> Result<usize, CliError> {
    if let Ok(number) = called.parse()
        && number < items.len()
    {
        return Ok(number);
    }
    let names: Vec<Option<&str>> = items
        .iter()
        .map(|item| item.get("name").or_else(|| item.get("trigger"))?.as_str())
        .collect();
    let places: Vec<usize> =
        (0..items.len()).filter(|place| names[*place] == Some(called)).collect();
    match *places {
        [place] => Ok(place),
        [_, _, ..] => {
            let message = format!("\"{path}\": {} items are named {called}", places.len());
            let places: Vec<String> = places.iter().map(usize::to_string).collect();
            let hint = format!("select one by its index: {}", places.join(" or "));
            Err(CliError::usage(message).hint(hint))
        }
        [] => {
            let count = items.len();
            let message = format!("\"{path}\": there is no item {called}, there are {count}");
            let names = || names.iter().copied().flatten();
            let error = CliError::usage(message);
            Err(match (nearest(called, names()), names().next()) {
                (Some(near), _) => error.hint(format!("did you mean \"{near}\"?")),
                (None, Some(_)) => {
                    error.hint(format!("there are {}", names().collect::<Vec<_>>().join(", ")))
                }
                (None, None) => error.hint("the first item is 0"),
            })
        }
    }
}

/// Scales the population, with the flag in the error.
fn scale(file: &mut ScenarioFile, agents: u64) -> Result<(), CliError> {
    file.scale_population(agents).map_err(|error| {
        let message = format!("--agents {agents}: {error}");
        let hint = match error {
            ScalingError::TooFewAgents { singles } => {
                format!("use {singles} or more, or remove some of them from the population")
            }
            ScalingError::EmptyPopulation => "give it a population".to_owned(),
        };
        CliError::usage(message).hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_writes_the_value_at_its_path() {
        let mut document = json!({"world": {"rates": [{"trigger": "a"}, {"trigger": "b"}]}});
        for (path, value) in [
            ("seed", json!(3)),
            ("world.rates.0.rate", json!(0.1)),
            ("world.rates[1].rate", json!(0.2)),
            ("world.rates.b.state", json!("idle")),
            ("world.other.deep", json!(true)),
        ] {
            write_at_path(&mut document, path, value).unwrap();
        }
        let expected = json!({"seed": 3, "world": {"other": {"deep": true}, "rates": [
            {"trigger": "a", "rate": 0.1}, {"trigger": "b", "rate": 0.2, "state": "idle"}
        ]}});
        assert_eq!(document, expected);
        for wrong in ["world.rates.2.rate", "world.rates.c.rate", "seed.inside"] {
            assert!(write_at_path(&mut document, wrong, json!(1)).is_err(), "{wrong}");
        }
        assert_eq!(document, expected);
        let mut document = json!({"rates": [{"trigger": "a"}, {"trigger": "b"}, {"trigger": "a"}]});
        let error = write_at_path(&mut document, "rates.a.rate", json!(1)).unwrap_err();
        assert_eq!(error.message(), "\"rates.a.rate\": 2 items are named a");
        write_at_path(&mut document, "rates.2.rate", json!(1)).unwrap();
        assert_eq!(document["rates"][2]["rate"], 1);
    }
}
