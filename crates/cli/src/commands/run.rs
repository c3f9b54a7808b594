//! `polity run`: creates a task and follows it to its end.

pub(crate) mod background;
mod follow;
mod recording;

use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroU64;
use std::path::Path;

use polity_drivers::EnvSource;
use polity_engine::commands::{CreateTask, TaskOrigin};
use polity_engine::decide::CommandRejection;
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::{EngineError, TaskHandle};
use polity_host::recording::{CassetteFile, Recording, RecordingScope, RecordingSubject};
use polity_host::{Host, find_assignee};
use polity_model::budget::Budget;
use polity_model::event::JournalPosition;
use polity_model::event::RaisedLimits;
use polity_model::failure::ErrorCode;
use polity_model::machine::task::TaskStatus;
use polity_model::number::UsdLimit;
use polity_model::task::Task;
use serde_json::{Map, Value};

use crate::app::{AppContext, close};
use crate::args::{GlobalOptions, RunArgs};
use crate::commands::trust::explain;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_exact, print_json};
use crate::view::{style, task as task_view};

pub(crate) use follow::follow;
pub(crate) use recording::finish;

pub(crate) async fn run(app: &AppContext, args: RunArgs) -> CliResult {
    let background = background::is_background();
    if args.detach && !background {
        return background::detach(app).await;
    }
    if background {
        background::leave_terminal();
    }
    let home = app.definitions()?;
    let assignee = find_assignee(&app.context, &home, &args.name)?;
    let open = |request| CassetteFile::open(request, &args.name, RecordingScope::WholeTask);
    let file = args.recording.request().map(open).transpose()?;
    let recorded = file.as_ref().and_then(CassetteFile::input).map(str::to_owned);
    let recorded_parameters = file.as_ref().and_then(CassetteFile::parameters).cloned();
    let parameters = match recorded_parameters {
        Some(recorded) if args.params.is_empty() => recorded,
        Some(_) | None => parameters(&args.params)?,
    };
    let file = file.map(|file| file.with_parameters(parameters.clone()));
    let description = match (args.input, recorded) {
        (None, Some(recorded)) => recorded,
        (input, _) => read_input(input.as_deref(), home.settings.limits.input_bytes.get())?,
    };
    let overrides = overrides(app, args.cwd.as_deref(), &args.envs)?;
    let run = RecordingSubject { agent: &args.name, input: &description, overrides: &overrides };
    let (drivers, recording) = Recording::open(file, &app.context, &home, run)?;
    let create = CreateTask {
        assignee,
        origin: TaskOrigin::Outside,
        parameters,
        description,
        class: args.class,
        retention_days: args.retention_days,
        budget: budget(args.max_cost_usd, args.max_tokens),
        raised: RaisedLimits::default(),
        overrides,
    };
    let host = Host::open_with(&app.context, &home, drivers).await?;
    let begin = host.runtime().create(create);
    let outcome = Box::pin(perform(app, &host, &recording, background, begin)).await;
    close(host).await;
    outcome
}

/// Creates or adopts a task and follows it to its end: silently in the background, else with each
/// step.
pub(crate) async fn perform(
    app: &AppContext,
    host: &Host,
    recording: &Recording,
    background: bool,
    begin: impl Future<Output = Result<TaskHandle, EngineError>>,
) -> CliResult {
    let live = host.runtime().subscribe();
    let handle = match begin.await {
        Ok(handle) => handle,
        Err(error) => return Err(explain(host.queries(), error).await),
    };
    if background {
        return background::work(app, host, handle, recording).await;
    }
    let mut task = follow(app, host, handle, live, JournalPosition::default()).await?;
    loop {
        let seen = host.queries().store().last_position().await?;
        if !recording.replay_answer(host, &task).await? {
            break;
        }
        let live = host.runtime().subscribe();
        task = match host.runtime().adopt(task.id).await {
            Ok(handle) => follow(app, host, handle, live, seen).await?,
            // The answer has opened the next review at once, or has ended the task.
            Err(EngineError::Rejected(
                CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. },
            )) => host.queries().load_task(task.id).await?,
            Err(error) => return Err(error.into()),
        };
    }
    let exit = present(&app.options, &task)?;
    finish(app, recording, &task)?;
    Ok(exit)
}

/// The overrides of the agent's definition.
fn overrides(
    app: &AppContext,
    cwd: Option<&Path>,
    envs: &[String],
) -> Result<RunOverrides, CliError> {
    let working_directory = working_directory(cwd)?;
    Ok(RunOverrides { working_directory, envs: variables(app.context.environment(), envs)? })
}

/// The working directory of the program, on this machine.
pub(super) fn working_directory(cwd: Option<&Path>) -> Result<Option<String>, CliError> {
    let absolute = cwd.map(|folder| {
        let absolute = std::path::absolute(folder);
        let absolute = absolute.map_err(|error| CliError::io("find", folder, &error))?;
        if !absolute.is_dir() {
            let message = format!("there is no folder {}", folder.display());
            return Err(
                CliError::usage(message).hint("--cwd is the working directory of the program")
            );
        }
        Ok(absolute.to_string_lossy().into_owned())
    });
    absolute.transpose()
}

/// The variables for the program.
pub(super) fn variables(
    own: &EnvSource,
    envs: &[String],
) -> Result<BTreeMap<String, String>, CliError> {
    // Other users can read the command line, so a name alone is enough.
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        None if !text.is_empty() => {
            own.get(text).map(|value| (text.clone(), value)).ok_or_else(|| {
                CliError::usage(format!(
                    "--env {text}: this variable is not set in the environment"
                ))
                .hint("set it, or give NAME=VALUE")
            })
        }
        Some(_) | None => Err(CliError::usage("--env takes NAME or NAME=VALUE")
            .hint("the value is not repeated here, because it may be a secret")),
    };
    envs.iter().map(pair).collect()
}

/// The input of the task. Reads at most a few bytes over the limit from stdin.
pub(super) fn read_input(input: Option<&str>, bytes_max: u64) -> Result<String, CliError> {
    match input {
        None => Err(CliError::usage("there is no input")
            .hint("give it as polity run NAME \"INPUT\", or use - to read it from stdin")),
        Some("-") => {
            let stdin = Path::new("stdin");
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                // One byte over the limit shows that it is exceeded; a final newline is removed.
                .take(bytes_max.saturating_add(3))
                .read_to_end(&mut bytes)
                .map_err(|error| CliError::io("read", stdin, &error))?;
            let over = bytes.len() as u64 > bytes_max;
            match String::from_utf8(bytes) {
                // The final newline of `echo` is not part of the input.
                Ok(text) => {
                    let line = text.strip_suffix('\n').unwrap_or(&text);
                    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
                }
                // It was cut within a character; the limit is the error to report.
                Err(error) if over => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
                Err(_) => Err(CliError::usage("stdin is not UTF-8 text")),
            }
        }
        Some(text) => Ok(text.to_owned()),
    }
}

/// The budget from the flags, if one is given.
fn budget(max_cost_usd: Option<UsdLimit>, max_tokens: Option<NonZeroU64>) -> Option<Budget> {
    let is_limited = max_cost_usd.is_some() || max_tokens.is_some();
    is_limited.then_some(Budget { max_cost_usd, max_tokens })
}

pub(crate) fn parameters(params: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut parameters = Map::new();
    for param in params {
        let (name, value) =
            param.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                CliError::usage(format!("\"{param}\" is not a parameter"))
                    .hint("write it as NAME=VALUE: --param topic=rain")
            })?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        if parameters.insert(name.to_owned(), value).is_some() {
            return Err(CliError::usage(format!("the parameter \"{name}\" is given twice")));
        }
    }
    Ok(parameters)
}

/// The command that continues a failed task; a part is retried with its whole.
fn retry_hint(task: &Task) -> String {
    let raised = match task.error_code {
        Some(ErrorCode::Budget) => " --max-cost-usd USD --max-tokens N",
        Some(_) | None => "",
    };
    match task.parent_task_id {
        None if task.undone => format!("; {}", task_view::undone_hint(task)),
        None => format!("; continue with `polity task retry {}{raised}`", task.id),
        Some(_) => String::new(),
    }
}

/// Prints the result of a task on stdout and its error on stderr.
pub(crate) fn present(options: &GlobalOptions, task: &Task) -> CliResult {
    if options.json {
        print_json(task)?;
        return Ok(ExitStatus::of_task(task));
    }
    if let Some(result) = &task.result {
        print_exact(&format!("{}\n", result.trim_end_matches('\n')))?;
    }
    let id = task.id;
    if task.status == TaskStatus::AwaitingHuman && task.interrupted {
        note!("there is nothing left to decide, and no process continues the task");
        note!("  {}: continue with `polity task resume {id}`", style::hint("hint"));
    } else if task.status == TaskStatus::AwaitingHuman {
        note!("waiting for a person's decision");
        note!("  {}: show the review with `polity review show {id}`", style::hint("hint"));
    }
    if let Some(error) = &task.error {
        let code = task.error_code.map_or("failed", ErrorCode::label);
        note!("{}: {code}: {}", style::error("error"), error);
        note!("  {}: see `polity task trace {id}`{}", style::hint("hint"), retry_hint(task));
    } else if task.status == TaskStatus::Cancelled && task.undone {
        note!("  {}: {}", style::hint("hint"), task_view::undone_hint(task));
    } else if task.status == TaskStatus::Cancelled && task.parent_task_id.is_none() {
        note!("  {}: continue it with `polity task retry {id}`", style::hint("hint"));
    }
    Ok(ExitStatus::of_task(task))
}
