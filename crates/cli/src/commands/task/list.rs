//! `polity task list`: tasks, and on request their parts.

use polity_model::task::Task;
use polity_store::TaskFilter;

use crate::app::AppContext;
use crate::args::{GlobalOptions, TaskListArgs};
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
    let parts = (!with_parts).then_some(parts.as_slice());
    print(&app.options, &tasks, parts, is_narrowed)?;
    Ok(exit)
}

/// Prints tasks, with the number of parts of each, or with their parents.
pub(crate) fn print(
    options: &GlobalOptions,
    tasks: &[Task],
    parts: Option<&[u64]>,
    is_narrowed: bool,
) -> Result<(), CliError> {
    if options.json {
        print_json(&tasks)?;
    } else if !tasks.is_empty() {
        let column = parts.map_or(TaskListColumn::Parent, TaskListColumn::Parts);
        say!("{}", listed(tasks, &column))?;
    } else if is_narrowed && parts.is_some() {
        say!("no tasks; --parts includes the parts of tasks")?;
    } else {
        say!("no tasks")?;
    }
    Ok(())
}
