//! `polity task diff`: compares two tasks.

use polity_engine::comparison::{ComparedRun, RunComparison};
use polity_model::ids::TaskId;
use polity_model::task::ForkedFrom;
use polity_model::trace::shorten;
use serde::Serialize;

use crate::app::AppContext;
use crate::args::DiffArgs;
use crate::error::CliResult;
use crate::view::comparison::comparison_text;

/// The length of an input.
const INPUT_CHARACTERS_MAX: usize = 48;

/// One of the two tasks.
#[derive(Serialize)]
struct DiffSide<'a> {
    task_id: String,
    assigned_agent: &'a str,
    description: String,
    status: String,
    steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<ForkedFrom>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<TaskId>,
}

/// The JSON output.
#[derive(Serialize)]
struct TaskDiff<'a> {
    a: DiffSide<'a>,
    b: DiffSide<'a>,
    #[serde(flatten)]
    comparison: &'a RunComparison,
}

pub(crate) async fn diff(app: &AppContext, args: &DiffArgs) -> CliResult {
    let queries = app.queries()?;
    let (a, b) = (queries.find_task(&args.a).await?, queries.find_task(&args.b).await?);
    let (a, b) = (queries.comparison_run(a.id).await?, queries.comparison_run(b.id).await?);
    let comparison = RunComparison::of(&a, &b);
    let document = TaskDiff { a: side(&a), b: side(&b), comparison: &comparison };
    app.print(&document, || comparison_text(&a, &b, &comparison))
}

fn side(run: &ComparedRun) -> DiffSide<'_> {
    let task = &run.task;
    DiffSide {
        task_id: task.id.to_string(),
        assigned_agent: task.assigned_agent.as_str(),
        description: shorten(&task.description, INPUT_CHARACTERS_MAX),
        status: task.status.to_string(),
        steps: run.steps.len(),
        forked_from: task.forked_from,
        retry_of: task.retry_of,
    }
}
