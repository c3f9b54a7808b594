//! `polity task` on a server.

use std::time::{Duration, Instant};

use polity_engine::checkpoints::CheckpointSummary;
use polity_engine::clock::{Clock, SystemClock};
use polity_model::checkpoint::Checkpoint;
use polity_model::ids::TaskId;
use polity_model::machine::Machine;
use polity_model::machine::task::TaskStatus;
use polity_model::number::UsdLimit;
use polity_model::task::Task;
use polity_model::trace::TraceLog;
use serde_json::{Map, Value, json};

use super::follow::{FirstStep, ended, follow};
use super::lookup::find_task;
use super::start::start;
use super::{refusal, refuse_recording, refuse_trust};
use crate::args::{
    DefinitionSource, ForkArgs, ResumeArgs, RetryArgs, TaskArgs, TaskCommand, TaskListArgs,
    TaskShowArgs, WaitArgs,
};
use crate::client::{ApiClient, ServerLink, TaskEvents};
use crate::commands::run::present;
use crate::commands::set_option;
use crate::commands::task::watch::{is_under_way, still_running};
use crate::commands::task::{TracedTask, cancel, checkpoints, fork, list, trace_text};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::live::LiveView;
use crate::view::task as view;

/// The longest time that one request waits for a task.
const WAIT_SECONDS: u64 = 30;

/// The refresh interval of the line of the current step.
const TICK: Duration = Duration::from_millis(100);

/// The most tasks whose parts one request counts.
const COUNTED_TASKS_MAX: usize = 500;

pub(super) async fn task(link: &ServerLink, command: TaskCommand) -> CliResult {
    match command {
        TaskCommand::List(args) => list(link, args).await,
        TaskCommand::Show(args) => show(link, &args).await,
        TaskCommand::Trace(args) => trace(link, &args).await,
        TaskCommand::Checkpoints(args) => show_checkpoints(link, &args).await,
        TaskCommand::Watch(args) => watch(link, &args).await,
        TaskCommand::Wait(args) => wait(link, &args).await,
        TaskCommand::Cancel(args) => cancel_task(link, &args).await,
        TaskCommand::Resume(args) => resume(link, &args).await,
        TaskCommand::Fork(args) => fork(link, &args).await,
        TaskCommand::Retry(args) => retry(link, &args).await,
        TaskCommand::Export(_) => Err(refusal("task export")),
        TaskCommand::Import(_) => Err(refusal("task import")),
        TaskCommand::Diff(_) => Err(refusal("task diff")),
    }
}

async fn list(link: &ServerLink, args: TaskListArgs) -> CliResult {
    let client = &link.client;
    let parent = match &args.parent {
        Some(id) => Some(find_task(client, id).await?),
        None => None,
    };
    let with_parts = args.parts || parent.is_some();
    let is_narrowed = !args.status.is_empty() || args.agent.is_some();
    let mut query = vec![("parts", with_parts.to_string())];
    query.extend(args.agent.map(|agent| ("agent", agent)));
    query.extend(parent.map(|parent| ("parent", parent.to_string())));
    let mut tasks: Vec<Task> = Vec::new();
    // A request is about one status.
    let each = args.status.iter().map(|status| vec![("status", status.label().to_owned())]);
    let each = if args.status.is_empty() { vec![Vec::new()] } else { each.collect() };
    for status in each {
        let query = [query.clone(), status].concat();
        tasks.extend(client.list::<Task>(&["tasks"], &query, Some(args.limit)).await?);
    }
    if args.status.len() > 1 {
        tasks.sort_by_key(|task| std::cmp::Reverse(task.created_at));
        tasks.dedup_by_key(|task| task.id);
        tasks.truncate(args.limit as usize);
    }
    let needs_counts = !with_parts && !link.options.json;
    let counts = if needs_counts { count_parts(client, &tasks).await? } else { Vec::new() };
    list::print(&link.options, &tasks, (!with_parts).then_some(&counts), is_narrowed)?;
    Ok(ExitStatus::Done)
}

async fn count_parts(client: &ApiClient, tasks: &[Task]) -> Result<Vec<u64>, CliError> {
    let mut counts = Vec::with_capacity(tasks.len());
    for some in tasks.chunks(COUNTED_TASKS_MAX) {
        let ids: Vec<String> = some.iter().map(|task| task.id.to_string()).collect();
        let query = [("tasks", ids.join(","))];
        counts.extend(client.list::<u64>(&["part-counts"], &query, None).await?);
    }
    Ok(counts)
}

async fn show(link: &ServerLink, args: &TaskShowArgs) -> CliResult {
    let id = find_task(&link.client, &args.task.id).await?;
    let Some(number) = args.at else {
        let task = load(&link.client, id).await?;
        return link.options.print(&task, || view::details(&task));
    };
    let all = load_checkpoints(&link.client, id).await?;
    match all.iter().find(|checkpoint| checkpoint.sequence == number) {
        Some(checkpoint) => link.options.print(checkpoint, || checkpoints::details(checkpoint)),
        None => Err(missing_checkpoint(id, number, &all)),
    }
}

/// The error about a checkpoint that a task does not have.
fn missing_checkpoint(id: TaskId, number: u32, all: &[Checkpoint]) -> CliError {
    let there: Vec<_> = all.iter().map(|known| (known.sequence, &*known.position)).collect();
    checkpoints::missing(id, number, &there)
}

async fn load(client: &ApiClient, id: TaskId) -> Result<Task, CliError> {
    client.get(&["tasks", &id.to_string()], &[]).await
}

async fn load_checkpoints(client: &ApiClient, id: TaskId) -> Result<Vec<Checkpoint>, CliError> {
    client.list(&["tasks", &id.to_string(), "checkpoints"], &[], None).await
}

async fn load_trace(client: &ApiClient, id: TaskId) -> Result<TraceLog, CliError> {
    client.get(&["tasks", &id.to_string(), "trace"], &[]).await
}

async fn trace(link: &ServerLink, args: &TaskArgs) -> CliResult {
    let id = find_task(&link.client, &args.id).await?;
    if link.options.json {
        print_json(&load_trace(&link.client, id).await?)?;
    } else {
        let task = load(&link.client, id).await?;
        say!("{}", trace_text(&traced_task(&link.client, task).await?))?;
    }
    Ok(ExitStatus::Done)
}

/// Reads the traces of a task and its parts.
async fn traced_task(client: &ApiClient, task: Task) -> Result<TracedTask, CliError> {
    let trace = load_trace(client, task.id).await?;
    let query = [("parent", task.id.to_string())];
    let mut below: Vec<Task> = client.list(&["tasks"], &query, Some(u32::MAX)).await?;
    below.reverse();
    let mut parts = Vec::with_capacity(below.len());
    for part in below {
        parts.push(Box::pin(traced_task(client, part)).await?);
    }
    Ok(TracedTask { task, trace, parts, folded: 0 })
}

async fn show_checkpoints(link: &ServerLink, args: &TaskArgs) -> CliResult {
    let id = find_task(&link.client, &args.id).await?;
    let all = load_checkpoints(&link.client, id).await?;
    if link.options.json {
        print_json(&all)?;
        return Ok(ExitStatus::Done);
    }
    let summary = |checkpoint: Checkpoint| CheckpointSummary {
        checkpoint_id: checkpoint.checkpoint_id,
        sequence: checkpoint.sequence,
        message_count: checkpoint.state.messages.messages().len(),
        position: checkpoint.position,
        created_at: checkpoint.created_at,
        awaiting_human: checkpoint.awaiting_human,
        human_feedback: checkpoint.human_feedback,
    };
    let summaries: Vec<_> = all.into_iter().map(summary).collect();
    checkpoints::print_summaries(&summaries, load(&link.client, id).await?.status)
}

async fn watch(link: &ServerLink, args: &TaskArgs) -> CliResult {
    let (client, options) = (&link.client, &link.options);
    let id = find_task(client, &args.id).await?;
    let mut view = LiveView::new(options);
    let mut events = TaskEvents::open(client, id, false);
    let mut tick = tokio::time::interval(TICK);
    let task = loop {
        tokio::select! {
            event = events.next() => {
                let event = event.inspect_err(|_| view.clear())?;
                view.see(&event);
                if super::follow::may_be_over(&event.event)
                    && let Some(task) = ended(client, id).await?
                {
                    break task;
                }
            }
            _ = tick.tick() => view.tick(SystemClock.now()),
        }
    };
    view.clear();
    if options.json {
        print_json(&load_trace(client, id).await?)?;
        return Ok(ExitStatus::of_task(&task));
    }
    present(options, &task)
}

async fn wait(link: &ServerLink, args: &WaitArgs) -> CliResult {
    let id = find_task(&link.client, &args.id).await?;
    let began = Instant::now();
    let mut wait = Duration::ZERO;
    loop {
        let query = [("wait", format!("{}ms", wait.as_millis()))];
        let path = ["tasks", &id.to_string()];
        let task: Task = link.client.get_patiently(&path, &query).await?;
        if !is_under_way(task.status) {
            return present(&link.options, &task);
        }
        if task.needs_trust {
            return Err(CliError::conflict(format!("task {id} was imported and waits for trust"))
                .hint(format!("on the server's machine: `polity task resume {id}`")));
        }
        let left = args.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(still_running(id, task.status, args.timeout.unwrap_or_default()));
        }
        let most = Duration::from_secs(WAIT_SECONDS);
        wait = left.map_or(most, |left| left.min(most)).max(Duration::from_millis(1));
    }
}

async fn cancel_task(link: &ServerLink, args: &TaskArgs) -> CliResult {
    let id = find_task(&link.client, &args.id).await?;
    let path = ["tasks", &id.to_string(), "cancel"];
    let task = link.client.post(&path, &json!({})).await?;
    print_cancelled(link, task).await
}

/// Waits until a task that is being cancelled has ended, and prints it.
pub(super) async fn print_cancelled(link: &ServerLink, mut task: Task) -> CliResult {
    let id = task.id.to_string();
    while is_under_way(task.status) || task.status == TaskStatus::AwaitingHuman {
        let query = [("wait", format!("{WAIT_SECONDS}s"))];
        task = link.client.get_patiently(&["tasks", &id], &query).await?;
        if task.status == TaskStatus::AwaitingHuman {
            // The request does not wait for such a task.
            tokio::time::sleep(TICK).await;
        }
    }
    cancel::print(&link.options, &task)?;
    Ok(ExitStatus::Done)
}

async fn resume(link: &ServerLink, args: &ResumeArgs) -> CliResult {
    refuse_recording(&args.recording)?;
    refuse_trust(args.trust)?;
    let Some(id) = &args.which.id else {
        return Err(CliError::unsupported("--all does not work through a server")
            .hint("a server continues every interrupted task by itself"));
    };
    let id = find_task(&link.client, id).await?;
    let path = ["tasks", &id.to_string(), "resume"];
    let task: Task = link.client.post(&path, &json!({})).await?;
    let task = follow(link, task.id, FirstStep::Creation).await?;
    present(&link.options, &task)
}

/// The definitions of a request. Shows what has changed, if the home is on this machine.
async fn definitions(
    link: &ServerLink,
    id: TaskId,
    source: Option<DefinitionSource>,
) -> Result<&'static str, CliError> {
    let Some(DefinitionSource::Current) = source else { return Ok("pinned") };
    if let Some(app) = &link.home {
        let row = app.queries()?.task_row(id).await?;
        fork::current_definitions(app, &app.definitions()?, &row, source).await?;
    }
    Ok("current")
}

async fn fork(link: &ServerLink, args: &ForkArgs) -> CliResult {
    refuse_recording(&args.recording)?;
    refuse_trust(args.trust)?;
    let id = find_task(&link.client, &args.task.id).await?;
    let all = load_checkpoints(&link.client, id).await?;
    if all.iter().all(|checkpoint| checkpoint.sequence != args.from) {
        return Err(missing_checkpoint(id, args.from, &all));
    }
    let updates = set_option::updates(&args.set)?;
    let definitions = definitions(link, id, args.definitions).await?;
    let body = json!({"from": args.from, "set": updates.as_map(), "definitions": definitions});
    start(link, &["tasks", &id.to_string(), "fork"], &body, args.detach).await
}

async fn retry(link: &ServerLink, args: &RetryArgs) -> CliResult {
    refuse_recording(&args.recording)?;
    refuse_trust(args.trust)?;
    let id = find_task(&link.client, &args.task.id).await?;
    let mut body = Map::new();
    body.insert("definitions".into(), definitions(link, id, args.definitions).await?.into());
    for (field, value) in [
        ("max_cost_usd", json!(args.max_cost_usd.map(UsdLimit::get))),
        ("max_tokens", json!(args.max_tokens)),
        ("timeout_seconds", json!(args.timeout)),
    ] {
        if !value.is_null() {
            body.insert(field.to_owned(), value);
        }
    }
    let path = ["tasks", &id.to_string(), "retry"];
    start(link, &path, &Value::Object(body), args.detach).await
}
