//! `polity task list`: tasks, and on request their parts.

use polity_store::TaskFilter;

use crate::app::AppContext;
use crate::args::TaskListArgs;
use crate::error::{CliError, CliResult, print_error};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::task::{TaskListColumn, list as listed};

pub(crate) async fn list(app: &AppContext, args: TaskListArgs) -> CliResult {
    let queries = app.queries()?;
    let parent = match &args.parent {
        Some(id) => Some(queries.find_task(id).await?),
        None => None,
    };
    let with_parts = args.parts || parent.is_some();
    let is_narrowed = !args.status.is_empty() || args.agent.is_some();
    let filter = TaskFilter {
        statuses: args.status,
        assigned_agent: args.agent,
        parent: parent.map(|row| row.id),
        roots_only: !with_parts,
        limit: Some(args.limit),
        ..TaskFilter::default()
    };
    let (mut tasks, mut parts) = (Vec::new(), Vec::new());
    let mut exit = ExitStatus::Done;
    for row in queries.rows_by_shown_status(filter).await? {
        match queries.task_of(&row).await {
            Ok(task) => {
                tasks.push(task);
                parts.push(queries.count_parts(row.id).await?);
            }
            // An unreadable task must not hide the others.
            Err(error) => {
                print_error(&CliError::from(error), app.json());
                exit = ExitStatus::Failed;
            }
        }
    }
    if app.json() {
        print_json(&tasks)?;
    } else if !tasks.is_empty() {
        let column =
            if with_parts { TaskListColumn::Parent } else { TaskListColumn::Parts(&parts) };
        say!("{}", listed(&tasks, &column))?;
    } else if is_narrowed && !with_parts {
        say!("no tasks; --parts includes the parts of tasks")?;
    } else {
        say!("no tasks")?;
    }
    Ok(exit)
}
