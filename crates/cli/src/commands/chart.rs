//! `polity chart`: lists, shows, checks, draws and fires statecharts.

mod fire;
mod show;

use polity_definition::DefinitionProblem;
use polity_host::HostError;
use polity_host::simulations::CHARTS;
use polity_host::simulations::charts::{ChartDrawing, chart_summary, draw_chart};
use serde_json::json;

use self::fire::fire;
use self::show::show;
use crate::app::AppContext;
use crate::args::{ChartCheckArgs, ChartCommand, ChartFormat, ChartGraphArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_exact, print_json, say};
use crate::view::{count, table};

pub(crate) fn chart(app: &AppContext, command: &ChartCommand) -> CliResult {
    match command {
        ChartCommand::List => list(app),
        ChartCommand::Show(args) => show(app, args),
        ChartCommand::Check(args) => check(app, args),
        ChartCommand::Graph(args) => graph(app, args),
        ChartCommand::Fire(args) => fire(app, args),
    }
}

fn list(app: &AppContext) -> CliResult {
    let simulations = app.folder().simulations()?;
    let has_problems = !simulations.problems.is_empty();
    app.warn_of_problems(simulations.problems.len());
    let charts = || simulations.charts.values().map(|read| &*read.chart);
    let documents: Vec<_> = charts().map(chart_summary).collect();
    let which = if has_problems { "no valid charts" } else { "no charts" };
    let empty = format!("{which} in {}", app.folder().root().display());
    app.print_list(&documents, empty, || {
        let rows = charts().map(|chart| {
            let (states, transitions) = (chart.states().len(), chart.transitions().len());
            let initial = chart.state_name(chart.initial()).to_owned();
            [chart.name().to_owned(), states.to_string(), transitions.to_string(), initial]
        });
        table(["NAME", "STATES", "TRANSITIONS", "INITIAL"], rows)
    })
}

fn check(app: &AppContext, args: &ChartCheckArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let problems: Vec<DefinitionProblem> = match &args.name {
        None => {
            let is_chart = |problem: &&DefinitionProblem| problem.file.starts_with(CHARTS);
            simulations.problems.iter().filter(is_chart).cloned().collect()
        }
        Some(name) => match simulations.chart(name) {
            Ok(_) => Vec::new(),
            Err(HostError::InvalidDefinitions { problems, .. }) if !problems.is_empty() => problems,
            Err(error) => return Err(error.into()),
        },
    };
    if app.json() {
        print_json(&json!({"valid": problems.is_empty(), "errors": problems}))?;
        return Ok(if problems.is_empty() { ExitStatus::Done } else { ExitStatus::Usage });
    }
    if !problems.is_empty() {
        let message = count(problems.len(), "problem");
        return Err(CliError::invalid(message, problems));
    }
    match &args.name {
        Some(name) => say!("the chart \"{name}\" is valid")?,
        None => say!("{} valid", count(simulations.charts.len(), "chart"))?,
    }
    Ok(ExitStatus::Done)
}

fn graph(app: &AppContext, args: &ChartGraphArgs) -> CliResult {
    let simulations = app.folder().simulations()?;
    let chart = &simulations.chart(&args.name)?.chart;
    let format = match args.format {
        ChartFormat::Svg => ChartDrawing::Svg,
        ChartFormat::Mermaid => ChartDrawing::Mermaid,
        ChartFormat::Dot => ChartDrawing::Dot,
        ChartFormat::Scxml => ChartDrawing::Scxml,
    };
    let picture = draw_chart(chart, format)?;
    if app.json() {
        print_json(&json!({"name": chart.name(), "picture": picture}))?;
    } else {
        print_exact(&picture)?;
    }
    Ok(ExitStatus::Done)
}
