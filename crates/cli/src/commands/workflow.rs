//! `polity workflow`: lists, shows and draws workflows.

mod graph;

use polity_definition::WorkflowDefinition;
use polity_host::find_workflow;
use polity_host::views::{workflow_parts, workflow_summary};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::agent::plain;
use crate::app::AppContext;
use crate::args::{WorkflowArgs, WorkflowCommand};
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
    app.print_list(&documents, empty, || {
        let rows = home.workflows.values().map(|workflow| {
            let graph = workflow.expanded();
            let (count, entry) = (graph.nodes.len().to_string(), graph.entry_point.to_string());
            let uses = workflow_parts(workflow).into_iter().collect::<Vec<_>>().join(", ");
            [workflow.name.to_string(), count, entry, uses]
        });
        table(["NAME", "NODES", "ENTRY", "USES"], rows)
    })
}

fn show(app: &AppContext, args: &WorkflowArgs) -> CliResult {
    let workflow = find_workflow(&app.context, &app.folder().read()?, &args.name)?;
    let definition: Map<String, Value> = serde_json::from_str(&workflow.canonical_json())
        .map_err(|error| CliError::usage(format!("the definition cannot be shown: {error}")))?;
    if app.json() {
        print_json(&WorkflowJson { workflow: &workflow, definition: &definition })?;
        return Ok(ExitStatus::Done);
    }
    for (name, value) in definition.iter().filter(|(_, value)| !value.is_null()) {
        let label = style::label(&format!("{name}:"));
        match (name.as_str(), value) {
            ("nodes", Value::Object(nodes)) => {
                say!("{label}")?;
                for (node, value) in in_order(&workflow, nodes) {
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
    say!("{} {}", style::label("digest:"), workflow.digest())?;
    Ok(ExitStatus::Done)
}

/// The nodes in file order, which parsed JSON does not keep.
fn in_order<'a>(
    workflow: &'a WorkflowDefinition,
    nodes: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let names = workflow.nodes.iter().map(|node| node.name.as_str());
    names.filter_map(|name| nodes.get(name).map(|node| (name, node)))
}

/// A definition as JSON, with its nodes in file order and its digest.
struct WorkflowJson<'a> {
    workflow: &'a WorkflowDefinition,
    definition: &'a Map<String, Value>,
}

impl Serialize for WorkflowJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.definition {
            match (name.as_str(), value) {
                ("nodes", Value::Object(nodes)) => {
                    map.serialize_entry(
                        name,
                        &OrderedNodes(in_order(self.workflow, nodes).collect()),
                    )?;
                }
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.serialize_entry("digest", &self.workflow.digest())?;
        map.end()
    }
}

struct OrderedNodes<'a>(Vec<(&'a str, &'a Value)>);

impl Serialize for OrderedNodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}
