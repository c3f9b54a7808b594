//! `polity task cancel`: ends a task, whichever process runs it.

use polity_host::cancel_task;

use crate::app::AppContext;
use crate::args::TaskArgs;
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::task as view;

pub(crate) async fn cancel(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let id = queries.find_task(&args.id).await?.id;
    let home = app.definitions()?;
    let row = cancel_task(&app.context, &home, &queries, id).await?;
    let task = queries.task_of(&row).await?;
    if app.json() {
        print_json(&task)?;
    } else {
        say!("task {} is {}", task.id, view::status_text(&task))?;
        let top = queries.top_task(row).await?;
        if top.id != id && top.owner.is_none() {
            note!("task {} can be resumed with `polity task resume {}`", top.id, top.id);
        }
    }
    Ok(ExitStatus::Done)
}
