//! What is different from the scenario's file in one run.

use std::cmp::Reverse;
use std::sync::Arc;

use polity_model::definition::{Document, nearest};
use polity_simulator::scenario::{Limit, Scenario, ScenarioFile};
use serde_json::{Map, Value};

use super::super::set;
use crate::error::CliError;
use crate::simulations::{ReadScenario, complaint};

/// What someone wants to be different.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changes<'a> {
    pub(super) turns: Option<u64>,
    pub(super) agents: Option<u64>,
    pub(super) seed: Option<u64>,
    pub(super) set: &'a [String],
}

/// How a change is written.
const EXAMPLE: &str = "max_agents=100";

/// What cannot be different in a run: the run is of this scenario and this chart.
const FIXED_IN_RUN: [&str; 2] = ["name", "chart"];

/// What cannot be different in a fork: its agents are there already, and so is their past.
const FIXED_IN_FORK: [&str; 6] =
    ["name", "chart", "population", "ticks_per_turn", "start_time", "tick_seconds"];

/// A scenario with some changes.
pub(super) fn changed(read: &ReadScenario, changes: Changes<'_>) -> Result<ReadScenario, CliError> {
    let mut document = document_of(&read.file)?;
    let mut made = Vec::new();
    for change in changes.set {
        let (path, value) = set::change(change, EXAMPLE)?;
        let place = put(&mut document, path, value)?;
        made.push(Made { place, option: format!("--set {change}") });
    }
    for (field, value) in [("turns", changes.turns), ("seed", changes.seed)] {
        if let (Some(value), Some(fields)) = (value, document.as_object_mut()) {
            fields.insert(field.to_owned(), value.into());
            made.push(Made { place: field.to_owned(), option: format!("--{field} {value}") });
        }
    }
    let name = &read.scenario.name;
    let mut document = Document::<ScenarioFile>::from_text(name, &document.to_string());
    let invalid = |document: Document<ScenarioFile>| invalid(name, &made, document);
    let Some(mut file) = document.content.take().filter(|_| document.is_clean()) else {
        return Err(invalid(document));
    };
    if let Some(agents) = changes.agents {
        share(&mut file, agents)?;
    }
    let never = file.never_happening();
    if sets(changes.set, "lifecycle") && !never.is_empty() {
        for error in never {
            document.complain(complaint(error));
        }
        return Err(invalid(document));
    }
    match Scenario::new(&file, Arc::clone(&read.chart.chart)) {
        Ok(scenario) => Ok(ReadScenario { scenario, file, chart: read.chart.clone() }),
        Err(errors) => {
            let over = errors.iter().find_map(|error| Some((error.limit?, &error.message)));
            match over {
                Some((Limit::MaxAgents, message)) => {
                    return Err(CliError::over_limit("limit_max_agents", message)
                        .hint("raise it with --set max_agents=N, or in the scenario"));
                }
                Some((Limit::Turns, message)) => {
                    return Err(CliError::over_limit("limit_turns", message)
                        .hint("ask for fewer turns, or give a turn fewer ticks"));
                }
                None => {}
            }
            for error in errors {
                document.complain(complaint(error));
            }
            Err(invalid(document))
        }
    }
}

/// A change that was made.
struct Made {
    /// The way to the value, such as `world.rates[0].rate`.
    place: String,
    /// The option that asked for it, as it was typed.
    option: String,
}

impl Made {
    /// Whether what is wrong at a place is wrong with this change.
    fn is_at(&self, place: &str) -> bool {
        let within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        within(place, &self.place) || within(&self.place, place)
    }
}

/// That a scenario is not valid with some changes, and which of them are to blame.
fn invalid(name: &str, made: &[Made], document: Document<ScenarioFile>) -> CliError {
    let problems = document.into_problems();
    let to_blame = |made: &&Made| problems.iter().any(|problem| made.is_at(&problem.field));
    let mut options: Vec<&str> =
        made.iter().filter(to_blame).map(|made| made.option.as_str()).collect();
    if options.is_empty() {
        options = made.iter().map(|made| made.option.as_str()).collect();
    }
    let told: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let message = format!(
        "the scenario \"{name}\" is not valid with {}: {}",
        options.join(" "),
        told.join("; ")
    );
    let error = CliError::invalid(message, Vec::new());
    let first = problems.iter().find_map(|problem| {
        let meant = problem.suggestion.as_ref().map(|near| format!("did you mean \"{near}\"?"));
        meant.or_else(|| problem.allowed.as_ref().map(|allowed| format!("allowed: {allowed}")))
    });
    error.hint(first.unwrap_or_else(|| "`polity schema scenario` has what may be set".to_owned()))
}

/// What is begun, and so what of a scenario cannot be different.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fixed {
    InRun,
    InFork,
}

/// Refuses changes that make no sense.
pub(super) fn refuse_fixed(changes: &[String], fixed: Fixed) -> Result<(), CliError> {
    let (names, what, hint) = match fixed {
        Fixed::InRun => {
            (&FIXED_IN_RUN[..], "run", "write another scenario, or change the file of this one")
        }
        Fixed::InFork => (
            &FIXED_IN_FORK[..],
            "fork",
            "its agents and their past are those of the other run; `polity sim lifecycle` changes \
             who is there",
        ),
    };
    match names.iter().find(|name| sets(changes, name)) {
        Some(name) => {
            let message = format!("\"{name}\" cannot be different in a {what}");
            Err(CliError::usage(message).hint(hint))
        }
        None => Ok(()),
    }
}

/// Whether one of the changes is to this field, or to something in it. One that cannot be read is
/// told of where it is made.
pub(super) fn sets(changes: &[String], field: &str) -> bool {
    let path = |change: &String| set::change(change, EXAMPLE).ok().map(|(path, _)| path.to_owned());
    changes.iter().filter_map(path).any(|path| steps(&path).next() == Some(field))
}

/// The scenario as a run keeps it.
pub(super) fn text_of(file: &ScenarioFile) -> Result<String, CliError> {
    serde_json::to_string_pretty(&document_of(file)?).map_err(|error| unwritable(&error))
}

fn document_of(file: &ScenarioFile) -> Result<Value, CliError> {
    serde_json::to_value(file).map(without_nulls).map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> CliError {
    CliError::usage(format!("the scenario cannot be written: {error}"))
}

/// What a file does not say need not be said.
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

/// The steps of a path such as `world.rates.0.rate` or `world.rates[0].rate`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty())
}

/// Puts a value where a path leads, and says where that is. What is missing on the way is made.
fn put(document: &mut Value, path: &str, value: Value) -> Result<String, CliError> {
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
                let (count, known) = (items.len(), named(items));
                let index = step
                    .parse()
                    .ok()
                    .or_else(|| known.iter().position(|name| name.as_deref() == Some(step)));
                place = format!("{place}[{}]", index.unwrap_or_default());
                index.and_then(|index: usize| items.get_mut(index)).ok_or_else(|| {
                    let message = format!("\"{path}\": there is no item {step}, there are {count}");
                    let names = known.iter().flatten().map(String::as_str);
                    CliError::usage(message).hint(match nearest(step, names) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => "the first item is 0".to_owned(),
                    })
                })?
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let message = format!("\"{path}\": nothing can be inside of what stands there");
                return Err(CliError::usage(message));
            }
        };
    }
    *here = value;
    Ok(place)
}

/// Items that have a name or a trigger can be called by it.
fn named(items: &[Value]) -> Vec<Option<String>> {
    let name = |item: &Value| {
        let name = item.get("name").or_else(|| item.get("trigger"))?;
        name.as_str().map(str::to_owned)
    };
    items.iter().map(name).collect()
}

/// Gives the population this many agents, in the shares that its groups have.
fn share(file: &mut ScenarioFile, agents: u64) -> Result<(), CliError> {
    let groups = file.population.get_or_insert_default();
    let counts: Vec<u64> = groups.iter().map(|group| group.count.unwrap_or(1)).collect();
    let total: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    if total == 0 {
        return if agents == 0 {
            Ok(())
        } else {
            Err(CliError::usage("the scenario has no agents to have more or fewer of")
                .hint("give it a population"))
        };
    }
    // Each group has its share, rounded down; those who lost most by that get the agents that are
    // left, one each.
    let shares: Vec<u128> =
        counts.iter().map(|count| u128::from(*count) * u128::from(agents)).collect();
    let given: u128 = shares.iter().map(|share| share / total).sum();
    let mut by_loss: Vec<usize> = (0..shares.len()).collect();
    by_loss.sort_by_key(|group| Reverse(shares[*group] % total));
    let left = usize::try_from(u128::from(agents) - given).unwrap_or(usize::MAX);
    for (number, group) in by_loss.into_iter().enumerate() {
        let count = shares[group] / total + u128::from(number < left);
        groups[group].count = Some(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_put_where_its_path_leads() {
        let mut document = json!({"world": {"rates": [{"trigger": "a"}, {"trigger": "b"}]}});
        for (path, value) in [
            ("seed", json!(3)),
            ("world.rates.0.rate", json!(0.1)),
            ("world.rates[1].rate", json!(0.2)),
            ("world.rates.b.state", json!("idle")),
            ("world.other.deep", json!(true)),
        ] {
            put(&mut document, path, value).unwrap();
        }
        let expected = json!({"seed": 3, "world": {"other": {"deep": true}, "rates": [
            {"trigger": "a", "rate": 0.1}, {"trigger": "b", "rate": 0.2, "state": "idle"}
        ]}});
        assert_eq!(document, expected);
        for wrong in ["world.rates.2.rate", "world.rates.c.rate", "seed.inside"] {
            assert!(put(&mut document, wrong, json!(1)).is_err(), "{wrong}");
        }
        assert_eq!(document, expected);
    }

    #[test]
    fn groups_keep_their_shares() {
        let counts = |file: &ScenarioFile| -> Vec<u64> {
            file.population.as_ref().unwrap().iter().map(|group| group.count.unwrap()).collect()
        };
        let file: ScenarioFile = serde_json::from_value(json!({
            "population": [{"name": "a", "count": 18}, {"name": "b", "count": 6}, {"name": "c"}]
        }))
        .unwrap();
        for (agents, expected) in [
            (25, [18, 6, 1]),
            (50, [36, 12, 2]),
            (1_000_000, [720_000, 240_000, 40_000]),
            (3, [2, 1, 0]),
            (1, [1, 0, 0]),
            (27, [19, 7, 1]),
            (0, [0, 0, 0]),
        ] {
            let mut file = file.clone();
            share(&mut file, agents).unwrap();
            assert_eq!(counts(&file), expected, "{agents}");
        }
        assert!(share(&mut ScenarioFile::default(), 5).is_err());
        assert!(share(&mut ScenarioFile::default(), 0).is_ok());
    }
}
