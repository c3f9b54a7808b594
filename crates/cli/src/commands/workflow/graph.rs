//! `polity workflow graph`: a workflow as a picture, and how far a task has come on it.

use std::sync::Arc;

use polity_definition::WorkflowDefinition;
use polity_diagram::{GraphFormat, NodeMark, NodeMarks, draw_workflow};
use polity_engine::pinned::Assignee;
use polity_engine::runtime::Beginning;
use polity_engine::state::TaskState;
use polity_model::machine::task::TaskStatus;
use polity_model::session::task_of_call;
use polity_store::Store;
use serde_json::json;

use crate::app::App;
use crate::args::{PictureFormat, WorkflowGraphArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{print_bytes, print_json};

/// What is drawn.
struct Drawn {
    workflow: Arc<WorkflowDefinition>,
    marks: NodeMarks,
}

pub(super) fn graph(app: &App, args: &WorkflowGraphArgs) -> CliResult {
    let Drawn { workflow, marks } = match (&args.task, &args.name) {
        (Some(task), name) => of_task(app, task, name.as_deref())?,
        (None, Some(name)) => Drawn { workflow: super::find(app, name)?, marks: NodeMarks::new() },
        (None, None) => {
            return Err(CliError::usage("there is no workflow to draw")
                .hint("name one, or a task that follows one with --task"));
        }
    };
    let format = match args.format {
        PictureFormat::Svg => GraphFormat::Svg,
        PictureFormat::Mermaid => GraphFormat::Mermaid,
        PictureFormat::Dot => GraphFormat::Dot,
    };
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
        print_bytes(picture.as_bytes())?;
    }
    Ok(Exit::Done)
}

/// A task on the workflow that it pinned, whatever has become of the file since.
fn of_task(app: &App, task: &str, name: Option<&str>) -> Result<Drawn, CliError> {
    let store = app.reader()?;
    let row = app.task_row(&store, task)?;
    let assigned = &row.assigned_agent;
    let Beginning { assignee, state, rest } = Beginning::of(&store, row.id)?;
    let Assignee::Workflow(flow) = assignee else {
        let message = format!("task {} is of the agent \"{assigned}\", not of a workflow", row.id);
        let hint = format!("look at its steps with `polity task trace {}`", row.id);
        return Err(CliError::usage(message).hint(hint));
    };
    if let Some(name) = name.filter(|name| *name != assigned.as_str()) {
        let message =
            format!("task {} follows the workflow \"{assigned}\", not \"{name}\"", row.id);
        let hint = format!("polity workflow graph {assigned} --task {}", row.id);
        return Err(CliError::usage(message).hint(hint));
    }
    let state = state
        .following(rest)
        .map_err(|broken| CliError::not_found(format!("task {}: {broken}", row.id)))?;
    Ok(Drawn { workflow: flow.workflow, marks: marks(&store, &state)? })
}

/// How far each node has come.
fn marks(store: &dyn Store, state: &TaskState) -> Result<NodeMarks, CliError> {
    let mut marks = NodeMarks::new();
    let Some(walk) = state.walk() else { return Ok(marks) };
    let asks_about = state.review().and_then(|review| review.subject.call_id());
    for (number, node) in walk.plan().nodes().iter().enumerate() {
        let Some(mark) = NodeMark::of(walk.progress().node(number)) else { continue };
        let call = walk.call(number);
        let mark = match mark {
            // What was under way when the task ended was given up with it.
            NodeMark::Running | NodeMark::Waiting if state.status().is_final() => NodeMark::Skipped,
            NodeMark::Running if call.is_some() && call == asks_about => NodeMark::Waiting,
            // The work is a task of its own, which may wait for a person.
            NodeMark::Running => {
                let part = call.map(|call| store.task_row(task_of_call(call))).transpose()?;
                match part.flatten().map(|row| row.status) {
                    Some(TaskStatus::AwaitingHuman) => NodeMark::Waiting,
                    Some(
                        TaskStatus::Pending
                        | TaskStatus::Running
                        | TaskStatus::Completed
                        | TaskStatus::Failed
                        | TaskStatus::Cancelled,
                    )
                    | None => NodeMark::Running,
                }
            }
            NodeMark::Done | NodeMark::Waiting | NodeMark::Failed | NodeMark::Skipped => mark,
        };
        marks.insert(node.name().clone(), mark);
    }
    Ok(marks)
}
