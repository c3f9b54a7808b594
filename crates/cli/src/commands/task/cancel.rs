//! `polity task cancel`: ends a task, wherever it runs.

use std::sync::Arc;

use polity_engine::clock::SystemClock;
use polity_engine::runtime::{Steered, cancel as steer_cancel};
use polity_store::Store;

use super::watch;
use crate::app::{App, block_on};
use crate::args::TaskArgs;
use crate::error::CliResult;
use crate::exit::Exit;
use crate::view::live::LiveView;
use crate::view::{print_json, task as view};

pub(crate) fn cancel(app: &App, args: &TaskArgs) -> CliResult {
    let reader = app.reader()?;
    let row = app.task_row(&reader, &args.id)?;
    let home = app.definitions()?;
    let store: Arc<dyn Store> = Arc::new(app.writer(&home)?);
    let steered = block_on(async {
        Ok(steer_cancel(&store, &app.instances(), &SystemClock, row.id).await?)
    })?;
    let row = match steered {
        Steered::Done(_) => app.task_row(&reader, &args.id)?,
        // Its owner notices and carries it out; a task that ends otherwise first has ended too.
        Steered::Requested => watch::follow(app, &reader, row, &mut LiveView::silent())?,
    };
    let task = app.task(&reader, &row)?;
    if app.json() {
        print_json(&task)?;
    } else {
        anstream::println!("task {} is {}", task.id, view::status_text(&task));
    }
    Ok(Exit::Done)
}
