//! Trust in imported tasks: `--trust` gives it, and a refusal for lack of it lists what would run.

use polity_engine::decide::CommandRejection;
use polity_engine::runtime::EngineError;
use polity_host::{HomeQueries, Host};
use polity_model::ids::TaskId;

use crate::error::CliError;

/// Records that the user trusts a task, if the flag says so.
pub(crate) async fn trust_if_asked(
    host: &Host,
    task: TaskId,
    is_asked: bool,
) -> Result<(), CliError> {
    if is_asked {
        host.runtime().trust(task, &user_name()).await?;
    }
    Ok(())
}

/// The error of a command on a task. A refusal for lack of trust lists what the task would run.
pub(crate) async fn explain(queries: &HomeQueries, error: EngineError) -> CliError {
    let EngineError::Rejected(CommandRejection::NeedsTrust { task }) = error else {
        return error.into();
    };
    let access = async {
        let top = queries.top_task(queries.task_row(task).await?).await?;
        queries.pinned_access(top.id).await
    };
    match access.await {
        Ok(access) => CliError::from(error).with_access(access),
        Err(error) => error.into(),
    }
}

/// The name of the user who runs this command.
pub(crate) fn user_name() -> String {
    ["POLITY_USER", "USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var_os(name)?.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
}
