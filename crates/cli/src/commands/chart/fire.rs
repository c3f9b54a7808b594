//! `polity chart fire`: fires one trigger and reports its effects.

use polity_host::simulations::firing::{ChartFiring, FiredRequest, fire_trigger};
use serde_json::Value;

use crate::app::AppContext;
use crate::args::ChartFireArgs;
use crate::commands::set_option;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::style;

pub(super) fn fire(app: &AppContext, args: &ChartFireArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let chart = &simulations.chart(&args.name)?.chart;
    let context: Value = match &args.context {
        None => Value::Null,
        Some(text) => serde_json::from_str(text)
            .ok()
            .filter(Value::is_object)
            .ok_or_else(|| CliError::usage("--context is not a JSON object"))?,
    };
    let mut fields = Vec::new();
    for change in &args.set {
        let (name, value) = set_option::change(change, "FIELD=0.5")?;
        fields.push((name.to_owned(), value));
    }
    let (trigger, state) = (args.trigger.clone(), args.state.clone());
    let firing = ChartFiring { trigger, state, context, fields, seed: args.seed };
    let outcome = fire_trigger(chart, &firing)?;
    if app.json() {
        print_json(&outcome.to_json())?;
        return Ok(ExitStatus::Done);
    }
    for warning in &outcome.warnings {
        note!("{}: {warning}", style::warning("warning"));
    }
    match &outcome.to {
        Some(to) => say!("{} -> {to}", outcome.from)?,
        None => say!("{}: no transition for {}", outcome.from, args.trigger)?,
    }
    for (name, value) in &outcome.fields {
        say!("  agent.{name} = {value}")?;
    }
    for (name, verb, value) in &outcome.world {
        let sign = if *verb == "add" { "+=" } else { "=" };
        say!("  world.{name} {sign} {value}")?;
    }
    for request in &outcome.requests {
        say!("  asks: {}", request_in_words(request))?;
    }
    Ok(ExitStatus::Done)
}

/// The request in chart syntax.
fn request_in_words(request: &FiredRequest) -> String {
    let FiredRequest { action, agent, turns } = request;
    let agent = agent.as_ref().map(|agent| format!(" \"{agent}\"")).unwrap_or_default();
    let turns = turns.map(|turns| format!(" {turns}")).unwrap_or_default();
    format!("{action}{agent}{turns}")
}
