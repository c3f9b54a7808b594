//! `--detach`: runs a task in a background process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;

use polity_engine::decide::CommandRejection;
use polity_engine::runtime::{EngineError, TaskHandle};
use polity_host::Host;
use polity_host::recording::Recording;

use super::follow::left_interrupted;
use crate::app::AppContext;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::signals::unless_stopped;
use crate::terminal::{print_exact, print_json, say, tell};

/// Set in the background process to the id of its parent, so that its own children do not inherit
/// the role.
const BACKGROUND_OF: &str = "POLITY_BACKGROUND_OF";

/// True if this is the background process.
pub(crate) fn is_background() -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    let named = std::env::var_os(BACKGROUND_OF);
    parent.is_some() && named.as_deref() == parent.as_deref().map(OsStr::new)
}

/// Starts a new session, so that closing the terminal does not end the task.
pub(crate) fn leave_terminal() {
    // It fails only if the process leads a session already.
    let _ = rustix::process::setsid();
}

/// Starts a background process that creates and runs the task, and waits for the task's id. So the
/// task has one owner all the time.
pub(crate) async fn detach(app: &AppContext) -> CliResult {
    let program = std::env::current_exe()
        .map_err(|error| CliError::io("find", Path::new("this program"), &error))?;
    let io = |error| CliError::io("start", &program, &error);
    #[expect(clippy::disallowed_methods, reason = "the background process is started here")]
    let mut child = std::process::Command::new(&program)
        .args(std::env::args_os().skip(1))
        .env(BACKGROUND_OF, std::process::id().to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    // Stderr is read concurrently, so that a full pipe does not block the process.
    let stderr = child.stderr.take();
    let report = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            // A partial report is better than none.
            let _ = stderr.read_to_end(&mut text);
        }
        text
    });
    let mut id = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut id).map_err(io)?;
    }
    if id.trim().is_empty() {
        // No task was created: the process has reported why.
        let status = child.wait().map_err(io)?;
        tell(&String::from_utf8_lossy(&report.join().unwrap_or_default()));
        return Ok(ExitStatus::of_child(status.code()));
    }
    if app.json() {
        let queries = app.queries()?;
        let row = queries.find_task(id.trim()).await?;
        print_json(&queries.task_of(&row).await?)?;
    } else {
        say!("{}", id.trim())?;
    }
    Ok(ExitStatus::Done)
}

/// Runs the task in the background process.
pub(super) async fn work(
    app: &AppContext,
    host: &Host,
    mut handle: TaskHandle,
    recording: &Recording,
) -> CliResult {
    print_exact(&format!("{}\n", handle.id))?;
    let id = handle.id;
    unless_stopped(app, host, || left_interrupted(id), handle.wait()).await??;
    let mut task = host.queries().load_task(id).await?;
    while recording.replay_answer(host, &task).await? {
        match host.runtime().adopt(id).await {
            Ok(mut handle) => {
                unless_stopped(app, host, || left_interrupted(id), handle.wait()).await??;
            }
            // The answer has opened the next review at once, or has ended the task.
            Err(EngineError::Rejected(
                CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. },
            )) => {}
            Err(error) => return Err(error.into()),
        }
        task = host.queries().load_task(id).await?;
    }
    super::finish(app, recording, &task)?;
    Ok(ExitStatus::of_task(&task))
}
