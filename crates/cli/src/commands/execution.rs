//! `polity execution`: lists, shows and cancels executions.

use polity_model::execution::AgentExecution;
use polity_model::execution::view::ExecutionView;
use polity_store::ExecutionFilter;

use crate::app::AppContext;
use crate::args::{ExecutionArgs, ExecutionCommand, ExecutionListArgs, GlobalOptions, TaskArgs};
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{style, table, task as task_view};

pub(crate) async fn execution(app: &AppContext, command: &ExecutionCommand) -> CliResult {
    match command {
        ExecutionCommand::List(args) => list(app, args).await,
        ExecutionCommand::Show(args) => show(app, args).await,
        ExecutionCommand::Cancel(args) => cancel(app, args).await,
    }
}

async fn list(app: &AppContext, args: &ExecutionListArgs) -> CliResult {
    let filter = ExecutionFilter {
        agent: args.agent.clone(),
        open_only: args.active,
        limit: Some(args.limit),
        ..ExecutionFilter::default()
    };
    print_list(&app.options, &app.queries()?.execution_views(&filter).await?)
}

/// Prints executions as a table.
pub(crate) fn print_list(options: &GlobalOptions, views: &[ExecutionView]) -> CliResult {
    options.print_list(views, "no executions", || {
        let rows = views.iter().map(|execution| {
            [
                execution.id.to_string()[..8].to_owned(),
                state(execution),
                execution.agent_id.to_string(),
                execution.task_id.to_string()[..8].to_owned(),
                execution.start_time.map(task_view::time).unwrap_or_default(),
                execution.retry_count.to_string(),
                used(execution),
            ]
        });
        table(["ID", "STATE", "AGENT", "TASK", "STARTED", "RETRIES", "USED"], rows)
    })
}

/// The state in one word, or the result status of a finished execution.
fn state(execution: &ExecutionView) -> String {
    match &execution.result {
        Some(result) => serde_json::to_value(result.status)
            .ok()
            .and_then(|status| status.as_str().map(str::to_owned))
            .unwrap_or_default(),
        None if execution.queued => "queued".to_owned(),
        None => execution.state.to_string(),
    }
}

fn used(execution: &ExecutionView) -> String {
    // The usage of a remote agent is unknown.
    let Some(used) = execution.resource_usage.filter(|_| execution.process_id.is_some()) else {
        return String::new();
    };
    let seconds = std::time::Duration::from_millis(used.cpu_time_ms).as_secs_f64();
    format!("{seconds:.1} s CPU, {} MB", used.peak_memory_mb)
}

async fn show(app: &AppContext, args: &ExecutionArgs) -> CliResult {
    let queries = app.queries()?;
    let execution = queries.find_execution(&args.id).await?;
    let view = queries.execution_view(&execution).await?;
    print_details(&app.options, &view, &execution)
}

/// Prints an execution, with its runs.
pub(crate) fn print_details(
    options: &GlobalOptions,
    view: &ExecutionView,
    execution: &AgentExecution,
) -> CliResult {
    if options.json {
        print_json(view)?;
        return Ok(ExitStatus::Done);
    }
    say!("{} {}", style::label("execution:"), view.id)?;
    say!("{} {}", style::label("agent:"), view.agent_id)?;
    say!("{} {}", style::label("task:"), view.task_id)?;
    say!("{} {}", style::label("state:"), state(view))?;
    for moved in &execution.state_transitions {
        say!("  {} {} -> {}", task_view::time(moved.timestamp), moved.from, moved.to)?;
    }
    let most = view.max_retries.map(|most| format!(" of {most}")).unwrap_or_default();
    say!("{} {}{most}", style::label("retries:"), view.retry_count)?;
    for (number, run) in execution.runs.iter().enumerate() {
        say!("{} {}", style::label(&format!("run {}:", number + 1)), run.report)?;
        if let Some(failure) = &run.failure {
            say!("  {failure}")?;
        }
        if let Some(session) = &run.report.session_id {
            say!("  session {session} of the program")?;
        }
        if run.report.remote.is_some() {
            continue;
        }
        let kept = &run.report.output;
        say!(
            "  {} bytes of output and {} of errors, kept in data/{}",
            kept.stdout_bytes,
            kept.stderr_bytes,
            kept.folder
        )?;
        if let Some(workspace) = &run.report.workspace {
            say!("  {workspace}")?;
        }
        let artifacts = &run.report.artifacts;
        for file in &artifacts.files {
            let masked = if file.masked { ", masked" } else { "" };
            let (folder, path) = (&artifacts.folder, &file.path);
            say!("  kept data/{folder}/{path} ({} bytes{masked})", file.bytes)?;
        }
        for left in &artifacts.left_out {
            say!("  not kept: {}, {}", left.path, left.reason)?;
        }
    }
    if let Some(output) = view.result.as_ref().and_then(|result| result.output.as_ref()) {
        say!("{} {}", style::label("output:"), output)?;
    }
    Ok(ExitStatus::Done)
}

/// Cancels an execution by cancelling its task.
async fn cancel(app: &AppContext, args: &ExecutionArgs) -> CliResult {
    let task = app.queries()?.find_execution(&args.id).await?.task_id;
    super::task::cancel::cancel(app, &TaskArgs { id: task.to_string() }).await
}
