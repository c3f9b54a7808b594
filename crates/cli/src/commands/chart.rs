//! `polity chart`: how agents of simulations behave, and how that looks.

use std::sync::Arc;

use polity_engine::entropy::Entropy;
use polity_model::definition::{DrawnArrow, DrawnState, Problem, StatePicture};
use polity_statechart::{Arrow, Chart, FieldId, Instance, StateId, Value as FieldValue};
use serde_json::{Value, json};

use super::set;
use crate::app::App;
use crate::args::{
    ChartArgs, ChartCheckArgs, ChartCommand, ChartFireArgs, ChartFormat, ChartGraphArgs,
};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::simulations::CHARTS;
use crate::view::{count, note, print_bytes, print_json, say, style, table};

pub(crate) fn chart(app: &App, command: &ChartCommand) -> CliResult {
    match command {
        ChartCommand::List => list(app),
        ChartCommand::Show(args) => show(app, args),
        ChartCommand::Check(args) => check(app, args),
        ChartCommand::Graph(args) => graph(app, args),
        ChartCommand::Fire(args) => fire(app, args),
    }
}

fn list(app: &App) -> CliResult {
    let simulations = app.folder.simulations()?;
    if !simulations.problems.is_empty() && app.shows_progress() {
        let problems = count(simulations.problems.len(), "problem");
        note!("{}: {problems} in this home, see `polity check`", style::warning("warning"));
    }
    let charts = simulations.charts.values().map(|read| &*read.chart);
    if app.json() {
        let charts: Vec<_> = charts
            .map(|chart| {
                json!({
                    "name": chart.name(),
                    "states": chart.states().len(),
                    "transitions": chart.transitions().len(),
                    "initial": chart.state_name(chart.initial()),
                })
            })
            .collect();
        print_json(&charts)?;
    } else if simulations.charts.is_empty() {
        say!("no charts in {}", app.folder.root().display())?;
    } else {
        let rows = charts.map(|chart| {
            let (states, transitions) = (chart.states().len(), chart.transitions().len());
            let initial = chart.state_name(chart.initial()).to_owned();
            [chart.name().to_owned(), states.to_string(), transitions.to_string(), initial]
        });
        say!("{}", table(["NAME", "STATES", "TRANSITIONS", "INITIAL"], rows))?;
    }
    Ok(Exit::Done)
}

fn show(app: &App, args: &ChartArgs) -> CliResult {
    let simulations = app.folder.simulations()?;
    let read = simulations.chart(&args.name)?;
    if app.json() {
        print_json(&read.document)?;
        return Ok(Exit::Done);
    }
    let chart = &*read.chart;
    say!("{} {}", style::label("name:"), chart.name())?;
    say!("{} {}", style::label("initial:"), chart.state_name(chart.initial()))?;
    let states: Vec<&str> = chart.states().map(|state| chart.state_name(state)).collect();
    say!("{} {}", style::label("states:"), states.join(", "))?;
    for field in chart.fields() {
        let default = field.default.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let range = match (field.min, field.max) {
            (None, None) => String::new(),
            (Some(min), None) => format!(", at least {min}"),
            (None, Some(max)) => format!(", at most {max}"),
            (Some(min), Some(max)) => format!(", from {min} to {max}"),
        };
        say!("{} {default}{range}", style::label(&format!("field {}:", field.name)))?;
    }
    let rows = chart.transitions().iter().map(|transition| {
        let tree = chart.tree();
        let name = |place: &usize| tree[*place].name.clone();
        let sources: Vec<String> = transition.sources.iter().map(name).collect();
        let threshold = transition.threshold.as_ref().map(|ticks| format!("after {ticks} ticks"));
        let oracle = transition.oracle.then(|| "the oracle decides".to_owned());
        let when = [transition.guard.clone(), threshold, oracle];
        let when = when.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let trigger = chart.trigger_name(transition.trigger).to_owned();
        [trigger, sources.join(", "), name(&transition.target), when, transition.actions.join("; ")]
    });
    say!("\n{}", table(["TRIGGER", "FROM", "TO", "IF", "THEN"], rows))?;
    Ok(Exit::Done)
}

fn check(app: &App, args: &ChartCheckArgs) -> CliResult {
    let simulations = app.folder.simulations()?;
    let problems: Vec<Problem> = match &args.name {
        None => {
            let is_chart = |problem: &&Problem| problem.file.starts_with(CHARTS);
            simulations.problems.iter().filter(is_chart).cloned().collect()
        }
        Some(name) => match simulations.chart(name) {
            Ok(_) => Vec::new(),
            Err(error) if error.problems().is_empty() => return Err(error),
            Err(error) => error.problems().to_vec(),
        },
    };
    if app.json() {
        print_json(&json!({"valid": problems.is_empty(), "errors": problems}))?;
        return Ok(if problems.is_empty() { Exit::Done } else { Exit::Usage });
    }
    if !problems.is_empty() {
        let message = count(problems.len(), "problem");
        return Err(CliError::invalid(message, problems));
    }
    match &args.name {
        Some(name) => say!("the chart \"{name}\" is valid")?,
        None => say!("{} valid", count(simulations.charts.len(), "chart"))?,
    }
    Ok(Exit::Done)
}

fn graph(app: &App, args: &ChartGraphArgs) -> CliResult {
    let simulations = app.folder.simulations()?;
    let chart = &simulations.chart(&args.name)?.chart;
    let picture = picture(chart, args.format);
    if app.json() {
        print_json(&json!({"name": chart.name(), "picture": picture}))?;
    } else {
        print_bytes(picture.as_bytes())?;
    }
    Ok(Exit::Done)
}

fn fire(app: &App, args: &ChartFireArgs) -> CliResult {
    let simulations = app.folder.simulations()?;
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
    let mut agent = Instance::new(Arc::clone(&chart)).in_state(from);
    for change in &args.set {
        let (name, value) = set::change(change)?;
        let (field, value) = field_of(&chart, name, &value)?;
        agent.set_field(field, value).map_err(CliError::usage)?;
    }
    let seed = args.seed;
    let context = chart.context(&record).with_draws(move |index| {
        let seed = (u128::from(seed) << 64) | u128::from(index);
        let mut entropy = Entropy::from_seed(seed.to_be_bytes());
        // The first numbers of seeds that are alike are alike.
        for _ in 0..8 {
            entropy.fraction();
        }
        entropy.fraction()
    });
    let to = agent.fire(trigger, &context);
    for failure in agent.take_failures() {
        let (text, place) = chart.site(failure.site);
        let place = place.map_or("action".to_owned(), |place| format!("{place}: guard"));
        let reason = chart.describe(&failure.fault);
        note!("{}: {place} \"{text}\": {reason}", style::warning("warning"));
    }
    let (from, to) = (chart.state_name(from), to.map(|to| chart.state_name(to)));
    if app.json() {
        print_json(&json!({"from": from, "to": to}))?;
    } else {
        match to {
            Some(to) => say!("{from} -> {to}")?,
            None => say!("{from}: nothing follows on {}", args.trigger)?,
        }
    }
    Ok(Exit::Done)
}

fn state_of(chart: &Chart, name: &str) -> Result<StateId, CliError> {
    chart.state(name).ok_or_else(|| {
        let states: Vec<_> = chart.states().map(|state| chart.state_name(state)).collect();
        let message = format!("the chart \"{}\" has no state \"{name}\"", chart.name());
        CliError::usage(message).hint(format!("its states are {}", states.join(", ")))
    })
}

fn field_of(chart: &Chart, name: &str, value: &Value) -> Result<(FieldId, FieldValue), CliError> {
    let field = chart.field(name).ok_or_else(|| {
        let fields: Vec<_> = chart.fields().iter().map(|field| field.name.as_str()).collect();
        let message = format!("the chart \"{}\" has no field \"{name}\"", chart.name());
        CliError::usage(message).hint(format!("its fields are {}", fields.join(", ")))
    })?;
    let value = FieldValue::from_json(value).ok_or_else(|| {
        CliError::usage(format!("{name} must be a number, a text, true or false"))
    })?;
    Ok((field, value))
}

fn picture(chart: &Chart, format: ChartFormat) -> String {
    match format {
        ChartFormat::Mermaid => chart.to_mermaid(),
        ChartFormat::Scxml => chart.to_scxml(),
        ChartFormat::Svg => drawn(chart).to_svg(),
        ChartFormat::Dot => drawn(chart).to_dot(),
    }
}

/// The chart as states and arrows. A state that others are inside of says which.
fn drawn(chart: &Chart) -> StatePicture {
    let tree = chart.tree();
    let states = tree.iter().map(|node| {
        let inside: Vec<&str> = node.children.iter().map(|at| tree[*at].name.as_str()).collect();
        let around = node.parent.map(|at| format!("in {}", tree[at].name));
        let note = if inside.is_empty() {
            around.unwrap_or_default()
        } else {
            format!("holds {}", inside.join(", "))
        };
        DrawnState { name: node.name.clone(), note }
    });
    let arrows = chart.arrows().into_iter();
    let initial = tree.iter().position(|node| node.state == Some(chart.initial()));
    StatePicture {
        name: chart.name().to_owned(),
        states: states.collect(),
        arrows: arrows.map(|Arrow { from, to, labels }| DrawnArrow { from, to, labels }).collect(),
        initial: initial.unwrap_or_default(),
    }
}
