//! `polity workflow graph`: a diagram of a workflow, with the progress of a task.

use std::sync::Arc;

use polity_definition::WorkflowDefinition;
use polity_diagram::{GraphFormat, NodeMarks, draw_workflow};
use polity_host::find_workflow;
use serde_json::json;

use crate::app::AppContext;
use crate::args::{PictureFormat, WorkflowGraphArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_exact, print_json};

/// A workflow with the progress of its nodes.
struct WorkflowPicture {
    workflow: Arc<WorkflowDefinition>,
    marks: NodeMarks,
}

pub(super) async fn graph(app: &AppContext, args: &WorkflowGraphArgs) -> CliResult {
    let WorkflowPicture { workflow, marks } = match (&args.task, &args.name) {
        (Some(task), name) => of_task(app, task, name.as_deref()).await?,
        (None, Some(name)) => {
            let workflow = find_workflow(&app.context, &app.folder().read()?, name)?;
            WorkflowPicture { workflow, marks: NodeMarks::new() }
        }
        (None, None) => {
            return Err(CliError::usage("there is no workflow to draw")
                .hint("name one, or a task that runs one with --task"));
        }
    };
    let format = graph_format(args.format);
    let picture = draw_workflow(&workflow, format, &marks);
    if app.json() {
        let mut answer =
            json!({"name": workflow.name, "format": format.as_str(), "graph": picture});
        if args.task.is_some() {
            let marked = marks.iter().map(|(node, mark)| (node.to_string(), json!(mark.label())));
            answer["nodes"] = marked.collect();
        }
        print_json(&answer)?;
    } else {
        print_exact(&picture)?;
    }
    Ok(ExitStatus::Done)
}

/// The format of a picture.
pub(crate) fn graph_format(format: PictureFormat) -> GraphFormat {
    match format {
        PictureFormat::Svg => GraphFormat::Svg,
        PictureFormat::Mermaid => GraphFormat::Mermaid,
        PictureFormat::Dot => GraphFormat::Dot,
    }
}

/// A task on the workflow that it pinned.
async fn of_task(
    app: &AppContext,
    task: &str,
    name: Option<&str>,
) -> Result<WorkflowPicture, CliError> {
    let queries = app.queries()?;
    let row = queries.find_task(task).await?;
    let assigned = &row.assigned_agent;
    let Some((workflow, marks)) = queries.workflow_progress(row.id).await? else {
        let message = format!("task {} runs the agent \"{assigned}\", not a workflow", row.id);
        let hint = format!("show its steps with `polity task trace {}`", row.id);
        return Err(CliError::usage(message).hint(hint));
    };
    if let Some(name) = name.filter(|name| *name != assigned.as_str()) {
        let message = format!("task {} runs the workflow \"{assigned}\", not \"{name}\"", row.id);
        let hint = format!("polity workflow graph {assigned} --task {}", row.id);
        return Err(CliError::usage(message).hint(hint));
    }
    Ok(WorkflowPicture { workflow, marks })
}
