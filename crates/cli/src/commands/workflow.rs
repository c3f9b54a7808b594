//! `polity workflow`: lists, shows and draws workflows.

pub(super) mod graph;

use polity_host::find_workflow;
use polity_host::views::{WorkflowDetails, workflow_summary};
use serde_json::Value;

use super::agent::plain;
use crate::app::AppContext;
use crate::args::{GlobalOptions, WorkflowArgs, WorkflowCommand};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{style, table};

pub(crate) async fn workflow(app: &AppContext, command: &WorkflowCommand) -> CliResult {
    match command {
        WorkflowCommand::List => list(app),
        WorkflowCommand::Show(args) => show(app, args),
        WorkflowCommand::Graph(args) => graph::graph(app, args).await,
    }
}

fn list(app: &AppContext) -> CliResult {
    let home = app.valid_definitions()?;
    let documents: Vec<_> =
        home.workflows.values().map(|workflow| workflow_summary(workflow)).collect();
    let empty = format!("no workflows in {}", app.folder().root().display());
    print_list(&app.options, &documents, &empty)
}

/// Prints summaries of workflows.
pub(crate) fn print_list(options: &GlobalOptions, workflows: &[Value], empty: &str) -> CliResult {
    options.print_list(workflows, empty, || {
        let rows = workflows.iter().map(|workflow| {
            let text = |field: &str| workflow[field].as_str().unwrap_or_default().to_owned();
            let uses = workflow["uses"].as_array().into_iter().flatten();
            let uses: Vec<&str> = uses.filter_map(Value::as_str).collect();
            [text("name"), workflow["nodes"].to_string(), text("entry_point"), uses.join(", ")]
        });
        table(["NAME", "NODES", "ENTRY", "USES"], rows)
    })
}

fn show(app: &AppContext, args: &WorkflowArgs) -> CliResult {
    let workflow = find_workflow(&app.context, &app.folder().read()?, &args.name)?;
    let details = WorkflowDetails::of(&workflow)
        .map_err(|error| CliError::usage(format!("the definition cannot be shown: {error}")))?;
    print_details(&app.options, &details)
}

/// Prints the definition of a workflow.
pub(crate) fn print_details(options: &GlobalOptions, details: &WorkflowDetails) -> CliResult {
    if options.json {
        print_json(details)?;
        return Ok(ExitStatus::Done);
    }
    for (name, value) in details.fields.iter().filter(|(_, value)| !value.is_null()) {
        let label = style::label(&format!("{name}:"));
        match (name.as_str(), value) {
            ("nodes", _) => {
                say!("{label}")?;
                for (node, value) in &details.nodes {
                    say!("  {} {value}", style::label(&format!("{node}:")))?;
                }
            }
            ("edges", Value::Array(edges)) if !edges.is_empty() => {
                say!("{label}")?;
                for edge in edges {
                    say!("  {edge}")?;
                }
            }
            _ => say!("{label} {}", plain(value))?,
        }
    }
    say!("{} {}", style::label("digest:"), details.digest)?;
    Ok(ExitStatus::Done)
}
