//! `polity chart fire`: fires one trigger and reports its effects.

use std::sync::Arc;

use polity_engine::entropy::Entropy;
use polity_statechart::{
    AgentRef, AgentRequest, Chart, ChartInstance, FieldId, ScalarValue, StateId, WorldChange,
};
use serde_json::{Map, Value, json};

use crate::app::AppContext;
use crate::args::ChartFireArgs;
use crate::commands::set_option;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::style;

pub(super) fn fire(app: &AppContext, args: &ChartFireArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let chart = Arc::clone(&simulations.chart(&args.name)?.chart);
    let from = match &args.state {
        None => chart.initial(),
        Some(name) => state_of(&chart, name)?,
    };
    let trigger = chart.trigger(&args.trigger).ok_or_else(|| {
        let triggers: Vec<_> =
            chart.triggers().map(|trigger| chart.trigger_name(trigger)).collect();
        let message = format!("the chart \"{}\" has no trigger \"{}\"", args.name, args.trigger);
        CliError::usage(message).hint(format!("its triggers are {}", triggers.join(", ")))
    })?;
    let record: Value = match &args.context {
        None => Value::Null,
        Some(text) => serde_json::from_str(text)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| CliError::usage("--context is not a JSON object"))?,
    };
    refuse_no_values(&chart, &record)?;
    let mut agent = ChartInstance::new(Arc::clone(&chart)).in_state(from);
    for change in &args.set {
        let (name, value) = set_option::change(change, "FIELD=0.5")?;
        let (field, value) = field_of(&chart, name, &value)?;
        agent.set_field(field, value).map_err(CliError::usage)?;
    }
    let seed = args.seed;
    let context = chart.context(&record).with_draws(move |index| {
        let seed = (u128::from(seed) << 64) | u128::from(index);
        let mut entropy = Entropy::from_seed(seed.to_be_bytes());
        // Similar seeds give similar first numbers.
        for _ in 0..8 {
            entropy.fraction();
        }
        entropy.fraction()
    });
    let before = agent.clone();
    let to = agent.fire(trigger, &context);
    let warnings: Vec<String> = agent
        .take_eval_errors()
        .into_iter()
        .map(|failure| {
            let (text, place) = chart.describe_site(failure.site);
            let place = place.map_or("action".to_owned(), |place| format!("{place}: guard"));
            format!("{place} \"{text}\": {}", chart.describe_error(&failure.error))
        })
        .collect();
    if !app.json() {
        for warning in &warnings {
            note!("{}: {warning}", style::warning("warning"));
        }
    }
    let (from, to) = (chart.state_name(from), to.map(|to| chart.state_name(to)));
    let (world, requests) = (agent.take_changes(), agent.take_requests());
    let fields = changed_fields(&before, &agent);
    if app.json() {
        let fields: Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_json())).collect();
        let world: Vec<Value> = world.iter().map(|change| change_as_json(&chart, change)).collect();
        let requests: Vec<Value> = requests.iter().map(request_as_json).collect();
        let mut outcome = json!({"from": from, "to": to});
        // Empty lists are omitted.
        for (name, value, is_empty) in [
            ("fields", json!(fields), fields.is_empty()),
            ("world", json!(world), world.is_empty()),
            ("requests", json!(requests), requests.is_empty()),
            ("warnings", json!(warnings), warnings.is_empty()),
        ] {
            if !is_empty {
                outcome[name] = value;
            }
        }
        print_json(&outcome)?;
        return Ok(ExitStatus::Done);
    }
    match to {
        Some(to) => say!("{from} -> {to}")?,
        None => say!("{from}: no transition for {}", args.trigger)?,
    }
    for (name, value) in fields {
        say!("  agent.{name} = {value}")?;
    }
    for change in &world {
        let (name, verb, value) = change_in_parts(&chart, change);
        let sign = if verb == "add" { "+=" } else { "=" };
        say!("  world.{name} {sign} {value}")?;
    }
    for request in &requests {
        say!("  asks: {}", request_in_words(request))?;
    }
    Ok(ExitStatus::Done)
}

/// Rejects a context in which a name that the chart reads is not a scalar.
fn refuse_no_values(chart: &Chart, context: &Value) -> Result<(), CliError> {
    let mut looked_at =
        chart.context_names().iter().filter_map(|name| Some((name, context.get(name)?)));
    match looked_at.find(|(_, value)| ScalarValue::from_json(value).is_none()) {
        Some((name, value)) => {
            let message = format!("--context: {name} is {value}");
            Err(CliError::usage(message).hint("it must be a number, a text, true or false"))
        }
        None => Ok(()),
    }
}

/// The changed fields with their new values.
fn changed_fields<'a>(
    before: &ChartInstance,
    after: &'a ChartInstance,
) -> Vec<(&'a str, &'a ScalarValue)> {
    let chart = after.chart();
    let fields = chart.fields().iter();
    let changed = fields.filter_map(|field| {
        let id = chart.field(&field.name)?;
        let value = after.field(id)?;
        (before.field(id) != Some(value)).then_some((field.name.as_str(), value))
    });
    changed.collect()
}

/// The name, operation and value of a world change.
fn change_in_parts<'a>(
    chart: &'a Chart,
    change: &WorldChange,
) -> (&'a str, &'static str, ScalarValue) {
    let (world, verb, value) = match change {
        WorldChange::Set(world, value) => (*world, "set", value.clone()),
        WorldChange::Add(world, number) => (*world, "add", ScalarValue::Number(*number)),
    };
    (&chart.world_values()[world.index()].name, verb, value)
}

fn change_as_json(chart: &Chart, change: &WorldChange) -> Value {
    let (name, verb, value) = change_in_parts(chart, change);
    json!({"name": name, verb: value.to_json()})
}

/// The action, the target (none for the agent itself) and the number of turns.
fn request_in_parts(request: &AgentRequest) -> (&'static str, Option<&str>, Option<u32>) {
    match request {
        AgentRequest::Pause { who, turns } => ("pause", name_of(who), *turns),
        AgentRequest::Resume { name } => ("resume", Some(name), None),
        AgentRequest::Copy { name } => ("copy", name.as_deref(), None),
        AgentRequest::Remove { who } => ("remove", name_of(who), None),
    }
}

fn name_of(who: &AgentRef) -> Option<&str> {
    match who {
        AgentRef::Requester => None,
        AgentRef::Named(name) => Some(name),
    }
}

fn request_as_json(request: &AgentRequest) -> Value {
    let (action, agent, turns) = request_in_parts(request);
    json!({"action": action, "agent": agent, "turns": turns})
}

/// The request in chart syntax.
fn request_in_words(request: &AgentRequest) -> String {
    let (action, agent, turns) = request_in_parts(request);
    let agent = agent.map(|agent| format!(" \"{agent}\"")).unwrap_or_default();
    let turns = turns.map(|turns| format!(" {turns}")).unwrap_or_default();
    format!("{action}{agent}{turns}")
}

fn state_of(chart: &Chart, name: &str) -> Result<StateId, CliError> {
    chart.state(name).ok_or_else(|| {
        if let Some(inside) = chart.child_names(name) {
            let message = format!(
                "the state \"{name}\" has child states, and an agent is always in one of those"
            );
            let hint = format!("its child states are {}", inside.join(", "));
            return CliError::usage(message).hint(hint);
        }
        let states: Vec<_> = chart.states().map(|state| chart.state_name(state)).collect();
        let message = format!("the chart \"{}\" has no state \"{name}\"", chart.name());
        CliError::usage(message).hint(format!("its states are {}", states.join(", ")))
    })
}

fn field_of(chart: &Chart, name: &str, value: &Value) -> Result<(FieldId, ScalarValue), CliError> {
    let field = chart.field(name).ok_or_else(|| {
        let fields: Vec<_> = chart.fields().iter().map(|field| field.name.as_str()).collect();
        let message = format!("the chart \"{}\" has no field \"{name}\"", chart.name());
        CliError::usage(message).hint(format!("its fields are {}", fields.join(", ")))
    })?;
    let value = ScalarValue::from_json(value).ok_or_else(|| {
        CliError::usage(format!("{name} must be a number, a text, true or false"))
    })?;
    Ok((field, value))
}
