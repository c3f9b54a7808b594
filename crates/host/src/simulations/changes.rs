//! Changes of a scenario for one run.

use std::sync::Arc;

use polity_definition::{DefinitionProblem, ExternalDocument};
use polity_simulator::scenario::{
    ScalingError, Scenario, ScenarioError, ScenarioFile, ScenarioLimit,
};
use serde_json::{Map, Value};

use super::{LoadedScenario, complaint_from};

/// The requested changes.
#[derive(Debug, Clone, Default)]
pub struct ScenarioChanges {
    /// The turn after which the run starts.
    pub after: u64,
    /// The changes of fields, in order.
    pub fields: Vec<FieldChange>,
    /// The change of the population's size.
    pub size: Option<SizeChange>,
}

/// A change of one field.
#[derive(Debug, Clone)]
pub struct FieldChange {
    /// The path of the field, such as `world.rates.0.rate`.
    pub path: String,
    /// The new value.
    pub value: Value,
    /// The request as the user wrote it, for messages.
    pub request: String,
}

/// A change of the population's size.
#[derive(Debug, Clone)]
pub struct SizeChange {
    /// The number of agents.
    pub agents: u64,
    /// The request as the user wrote it, for messages.
    pub request: String,
}

/// A change of a scenario that is not possible.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ScenarioChangeError {
    /// The operation cannot change this field.
    #[error("\"{field}\" cannot be changed in a {operation}")]
    FixedField { field: &'static str, operation: &'static str },
    /// A path leads into a value without fields.
    #[error("\"{path}\": the value there is neither a mapping nor a list")]
    NotAContainer { path: String },
    /// Several items of a list have the name.
    #[error("\"{path}\": {} items are named {name}", indices.len())]
    AmbiguousItem { path: String, name: String, indices: Vec<usize> },
    /// A list has no such item.
    #[error("\"{path}\": there is no item {name}, there are {count}")]
    MissingItem { path: String, name: String, count: usize, known: Vec<String> },
    /// The population cannot have this size.
    #[error("{request}: {source}")]
    Size { request: String, source: ScalingError },
    /// The scenario exceeds a limit.
    #[error("{message}")]
    OverLimit { limit: ScenarioLimit, message: String },
    /// The changed scenario is not valid.
    #[error("the scenario \"{name}\" is not valid with {requests}: {}", messages(problems))]
    Invalid { name: String, requests: String, problems: Vec<DefinitionProblem> },
    /// The scenario cannot be serialized.
    #[error("the scenario cannot be written: {0}")]
    NotSerializable(#[from] serde_json::Error),
}

fn messages(problems: &[DefinitionProblem]) -> String {
    problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ")
}

/// The fields that a run cannot change.
const FIXED_IN_RUN: [&str; 2] = ["name", "chart"];

/// The fields that a fork cannot change because its agents and its past exist.
const FIXED_IN_FORK: [&str; 6] =
    ["name", "chart", "population", "ticks_per_turn", "start_time", "tick_seconds"];

/// Applies changes to a scenario.
pub fn apply_changes(
    read: &LoadedScenario,
    changes: ScenarioChanges,
) -> Result<LoadedScenario, ScenarioChangeError> {
    let mut document = document_of(&read.file)?;
    let mut applied = Vec::new();
    for FieldChange { path, value, request } in changes.fields {
        applied.push(AppliedChange { place: write_at_path(&mut document, &path, value)?, request });
    }
    if let Some(SizeChange { request, .. }) = &changes.size {
        let (place, request) = ("population".to_owned(), request.clone());
        applied.push(AppliedChange { place, request });
    }
    let name = &read.scenario.name;
    let mut document = ExternalDocument::<ScenarioFile>::from_text(name, &document.to_string());
    let invalid = |document: ExternalDocument<ScenarioFile>| invalid(name, &applied, document);
    let Some(mut file) = document.content.take().filter(|_| document.is_clean()) else {
        return Err(invalid(document));
    };
    if let Some(SizeChange { agents, request }) = changes.size {
        file.scale_population(agents)
            .map_err(|source| ScenarioChangeError::Size { request, source })?;
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
            if let Some((limit, message)) = over {
                let message = message.clone();
                return Err(ScenarioChangeError::OverLimit { limit, message });
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
    /// The request as the user wrote it.
    request: String,
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
) -> ScenarioChangeError {
    let problems = document.into_problems();
    let is_at_fault =
        |applied: &&AppliedChange| problems.iter().any(|problem| applied.covers(&problem.field));
    let request = |applied: &AppliedChange| applied.request.clone();
    let mut requests: Vec<String> = applied.iter().filter(is_at_fault).map(request).collect();
    if requests.is_empty() {
        requests = applied.iter().map(request).collect();
    }
    ScenarioChangeError::Invalid { name: name.to_owned(), requests: requests.join(" "), problems }
}

/// The operation that decides which fields are fixed.
#[derive(Debug, Clone, Copy)]
pub enum FixedFields {
    /// The fields that a run cannot change.
    InRun,
    /// The fields that a fork cannot change.
    InFork,
}

/// Rejects changes of fixed fields and of parts of them.
pub fn reject_fixed_fields(
    changes: &[FieldChange],
    fixed: FixedFields,
) -> Result<(), ScenarioChangeError> {
    let (fixed, operation) = match fixed {
        FixedFields::InRun => (&FIXED_IN_RUN[..], "run"),
        FixedFields::InFork => (&FIXED_IN_FORK[..], "fork"),
    };
    let is_set = |field: &str| changes.iter().any(|set| steps(&set.path).next() == Some(field));
    match fixed.iter().find(|field| is_set(field)) {
        Some(field) => Err(ScenarioChangeError::FixedField { field, operation }),
        None => Ok(()),
    }
}

/// The world values of the scenario that the changes set.
pub fn values_set(changes: &[FieldChange], file: &ScenarioFile) -> Vec<String> {
    let values = file.world.as_ref().and_then(|world| world.values.as_ref());
    let is_set = |name: &&String| {
        changes.iter().any(|change| {
            let mut steps = steps(&change.path);
            let mut path = ["world", "values", name].into_iter();
            path.all(|step| steps.next().is_none_or(|its| its == step))
        })
    };
    values.into_iter().flatten().map(|(name, _)| name).filter(is_set).cloned().collect()
}

/// The scenario as JSON text for the run folder.
pub fn scenario_text(file: &ScenarioFile) -> Result<String, ScenarioChangeError> {
    Ok(serde_json::to_string_pretty(&document_of(file)?)?)
}

fn document_of(file: &ScenarioFile) -> Result<Value, ScenarioChangeError> {
    Ok(without_nulls(serde_json::to_value(file)?))
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
fn write_at_path(
    document: &mut Value,
    path: &str,
    value: Value,
) -> Result<String, ScenarioChangeError> {
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
                return Err(ScenarioChangeError::NotAContainer { path: path.to_owned() });
            }
        };
    }
    *here = value;
    Ok(place)
}

/// The index of a list item, given its index, name or trigger.
fn find_item(items: &[Value], called: &str, path: &str) -> Result<usize, ScenarioChangeError> {
    if let Ok(number) = called.parse()
        && number < items.len()
    {
        return Ok(number);
    }
    let names: Vec<Option<&str>> = items
        .iter()
        .map(|item| item.get("name").or_else(|| item.get("trigger"))?.as_str())
        .collect();
    let indices: Vec<usize> =
        (0..items.len()).filter(|index| names[*index] == Some(called)).collect();
    let (path, name) = (path.to_owned(), called.to_owned());
    match *indices {
        [index] => Ok(index),
        [_, _, ..] => Err(ScenarioChangeError::AmbiguousItem { path, name, indices }),
        [] => {
            let known = names.into_iter().flatten().map(str::to_owned).collect();
            Err(ScenarioChangeError::MissingItem { path, name, count: items.len(), known })
        }
    }
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
        assert_eq!(error.to_string(), "\"rates.a.rate\": 2 items are named a");
        write_at_path(&mut document, "rates.2.rate", json!(1)).unwrap();
        assert_eq!(document["rates"][2]["rate"], 1);
    }
}
