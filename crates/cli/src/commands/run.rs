//! `polity run`: one task, from its creation to its end.

mod detach;
mod follow;

use std::io::{IsTerminal, Read};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;

use polity_engine::closure::Closure;
use polity_engine::commands::{CreateTask, Origin};
use polity_model::definition::{AgentDefinition, Budget, Home, Lookup, UsdLimit};
use polity_model::event::PinKind;
use polity_model::failure::ErrorCode;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use serde_json::{Map, Value};

use crate::app::{App, Workshop, block_on};
use crate::args::RunArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::tape::{Part, Tape, TapeFile};
use crate::view::{harmless, note, print_bytes, print_json, print_text, style};

pub(crate) use follow::follow;

pub(crate) fn run(app: &App, args: RunArgs) -> CliResult {
    let background = detach::is_background();
    if args.detach && !background {
        return detach::detach(app);
    }
    if background {
        // A session of its own, so that the end of the terminal is not the end of the task. It
        // fails only for a process that has one already.
        let _ = rustix::process::setsid();
    }
    let home = app.definitions()?;
    let agent = resolve(app, &home, &args.name)?;
    let file = TapeFile::find(&args.tape, &args.name, Part::Whole)?;
    let recorded = file.as_ref().and_then(TapeFile::input).map(str::to_owned);
    let description = match (args.input, recorded) {
        (None, Some(recorded)) => recorded,
        (input, _) => read_input(input.as_deref(), home.settings.limits.input_bytes.get())?,
    };
    let (drivers, tape) = Tape::open(file, app, &home, &args.name, &description)?;
    let create = CreateTask {
        closure: closure(&home, agent)?,
        origin: Origin::Outside,
        parameters: parameters(&args.params)?,
        description,
        class: args.class,
        retention_days: args.retention_days,
        budget: budget(args.max_cost_usd, args.max_tokens),
    };
    block_on(async {
        let workshop = Workshop::open_with(app, &home, drivers)?;
        let outcome = work(app, &workshop, create, &tape, background).await;
        workshop.close().await;
        outcome
    })
}

async fn work(
    app: &App,
    workshop: &Workshop,
    create: CreateTask,
    tape: &Tape,
    background: bool,
) -> CliResult {
    if background {
        let handle = workshop.runtime.create(create).await?;
        return detach::work(app, workshop, handle, tape).await;
    }
    let live = workshop.runtime.subscribe();
    let handle = workshop.runtime.create(create).await?;
    let task = follow(app, workshop, handle, live).await?;
    let exit = present(app, &task)?;
    tape.finish(app, &task)?;
    Ok(exit)
}

/// The agent that a name stands for.
pub(crate) fn resolve(
    app: &App,
    home: &Home,
    name: &str,
) -> Result<Arc<AgentDefinition>, CliError> {
    match home.find(name) {
        Lookup::Agent(agent) => Ok(agent),
        Lookup::Workflow(_) => Err(CliError::unsupported(format!(
            "\"{name}\" is a workflow, which this version cannot run yet"
        ))),
        Lookup::Broken(problems) => {
            let message = format!("the definition of \"{name}\" is not valid");
            Err(CliError::invalid(message, problems))
        }
        Lookup::Unknown { suggestion } => {
            Err(unknown(app, name, suggestion.map(|name| name.to_string())))
        }
    }
}

/// There is no such agent; perhaps another was meant, or another folder.
pub(crate) fn unknown(app: &App, name: &str, suggestion: Option<String>) -> CliError {
    let root = app.folder.root().display();
    let error = CliError::unknown_agent(format!("there is no agent \"{name}\" in {root}"));
    match suggestion {
        Some(suggestion) => error.hint(format!("did you mean \"{suggestion}\"?")),
        None => error.hint(
            "`polity agent list` shows the agents there are, `polity init` makes a home with one",
        ),
    }
}

pub(crate) fn closure(home: &Home, agent: Arc<AgentDefinition>) -> Result<Closure, CliError> {
    Closure::of(home, agent).map_err(|missing| {
        let (what, folder) = match missing.kind {
            PinKind::Agent => ("sub-agent", "agents"),
            PinKind::Script => ("script", "scripts"),
        };
        let file = format!("{folder}/{}.", missing.name);
        let of_file = home.problems.iter().filter(|problem| problem.file.starts_with(&file));
        let message = format!(
            "the {what} \"{}\" of agent \"{}\" is missing or not valid",
            missing.name, missing.needed_by
        );
        CliError::invalid(message, of_file.cloned().collect())
    })
}

/// The input as it was given. No more is read from stdin than a task may have, and a little.
fn read_input(input: Option<&str>, bytes_max: u64) -> Result<String, CliError> {
    match input {
        None => Err(CliError::usage("there is no input")
            .hint("say what to do: polity run NAME \"INPUT\", or - to read it from stdin")),
        Some("-") => {
            let stdin = Path::new("stdin");
            let mut bytes = Vec::new();
            std::io::stdin()
                .lock()
                // One more than allowed shows that it is too much, and a newline is taken off.
                .take(bytes_max.saturating_add(3))
                .read_to_end(&mut bytes)
                .map_err(|error| CliError::io("read", stdin, &error))?;
            let over = bytes.len() as u64 > bytes_max;
            match String::from_utf8(bytes) {
                // The newline with which `echo` ends is not part of what was said.
                Ok(text) => {
                    let line = text.strip_suffix('\n').unwrap_or(&text);
                    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
                }
                // It was cut within a character, and the limit is what there is to say about it.
                Err(error) if over => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
                Err(_) => Err(CliError::usage("stdin is not UTF-8 text")),
            }
        }
        Some(text) => Ok(text.to_owned()),
    }
}

/// What the task may spend, if the command says so.
fn budget(max_cost_usd: Option<UsdLimit>, max_tokens: Option<NonZeroU64>) -> Option<Budget> {
    let is_limited = max_cost_usd.is_some() || max_tokens.is_some();
    is_limited.then_some(Budget { max_cost_usd, max_tokens })
}

fn parameters(params: &[String]) -> Result<Map<String, Value>, CliError> {
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

/// Shows what came of a task: the result on stdout, what went wrong on stderr.
pub(crate) fn present(app: &App, task: &Task) -> CliResult {
    if app.json() {
        print_json(task)?;
        return Ok(Exit::of_task(task));
    }
    if let Some(result) = &task.result {
        let line = format!("{}\n", result.trim_end_matches('\n'));
        // A program gets what the model said to the letter; a terminal gets nothing it would obey.
        if std::io::stdout().is_terminal() {
            print_text(&harmless(&line))?;
        } else {
            print_bytes(line.as_bytes())?;
        }
    }
    if task.status == TaskStatus::AwaitingHuman {
        let id = task.id;
        note!("waiting for a person's decision");
        note!("  {}: see what is asked with `polity review show {id}`", style::hint("hint"));
    }
    if let Some(error) = &task.error {
        let code = task.error_code.map_or("failed", ErrorCode::label);
        note!("{}: {code}: {}", style::error("error"), harmless(error));
        note!("  {}: see `polity task trace {}`", style::hint("hint"), task.id);
    }
    Ok(Exit::of_task(task))
}
