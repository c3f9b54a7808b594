//! Starts work on a server, and shows it to its end unless it runs in the background.

use polity_model::task::Task;
use serde_json::Value;

use super::follow::{FirstStep, follow};
use crate::client::ServerLink;
use crate::commands::run::present;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};

/// Starts a task.
pub(super) async fn start(
    link: &ServerLink,
    path: &[&str],
    body: &Value,
    detach: bool,
) -> CliResult {
    let task = link.client.start(path, body).await;
    show_started(link, task, detach).await
}

/// Shows a task that was just started.
pub(super) async fn show_started(
    link: &ServerLink,
    started: Result<Task, CliError>,
    detach: bool,
) -> CliResult {
    let task = started?;
    if !detach {
        let task = follow(link, task.id, FirstStep::Creation).await?;
        return present(&link.options, &task);
    }
    if link.options.json {
        print_json(&task)?;
    } else {
        say!("{}", task.id)?;
    }
    Ok(ExitStatus::Done)
}
