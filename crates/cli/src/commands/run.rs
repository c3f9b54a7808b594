//! `polity run`: one task, from its creation to its end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::closure::Closure;
use polity_engine::commands::CreateTask;
use polity_engine::runtime::TaskHandle;
use polity_model::definition::{AgentDefinition, Home, Lookup};
use polity_model::event::{Recorded, StreamId};
use polity_model::failure::ErrorCode;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::task::Task;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use crate::app::{App, Workshop, block_on};
use crate::args::RunArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::live::LiveView;
use crate::view::{print_bytes, print_json, style};

/// How often the line of the step under way is drawn anew.
const TICK: Duration = Duration::from_millis(100);

pub(crate) fn run(app: &App, args: RunArgs) -> CliResult {
    if args.detach {
        return detach(app);
    }
    let home = app.definitions()?;
    let agent = resolve(app, &home, &args.name)?;
    let create = CreateTask {
        closure: closure(&home, agent)?,
        parameters: parameters(&args.params)?,
        description: read_input(args.input.as_deref(), home.settings.limits.input_bytes.get())?,
        class: args.class,
        retention_days: args.retention_days,
    };
    block_on(async {
        let workshop = Workshop::open(app, &home)?;
        let live = workshop.runtime.subscribe();
        let handle = workshop.runtime.create(create).await?;
        if args.background {
            return work(app, &workshop, handle).await;
        }
        let task = follow(app, &workshop, handle, live).await?;
        present(app, &task)
    })
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
    let closure = Closure::of(home, agent);
    let script = closure.llm().and_then(|llm| llm.llm_config.script.as_ref());
    if let (Some(script), None) = (script, &closure.script) {
        let file = format!("scripts/{script}.");
        let problems: Vec<_> = home
            .problems
            .iter()
            .filter(|problem| problem.file.starts_with(&file))
            .cloned()
            .collect();
        let message =
            format!("the script of agent \"{}\" is missing or not valid", closure.agent.name);
        return Err(CliError::invalid(message, problems));
    }
    Ok(closure)
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
                .take(bytes_max.saturating_add(1))
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

/// Has a process of its own create and run the task, and waits only until it has the task's id. So
/// the task has one owner from its beginning to its end.
fn detach(app: &App) -> CliResult {
    let program = std::env::current_exe()
        .map_err(|error| CliError::io("find", Path::new("this program"), &error))?;
    let io = |error| CliError::io("start", &program, &error);
    let same_arguments = std::env::args_os().skip(1).filter(|argument| argument != "--detach");
    #[expect(clippy::disallowed_methods, reason = "the background process is started here")]
    let mut child = std::process::Command::new(&program)
        .args(same_arguments)
        .arg("--background")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut id = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut id).map_err(io)?;
    }
    match id.trim().parse::<TaskId>() {
        Ok(id) if app.json() => print_json(&json!({"id": id, "status": TaskStatus::Pending}))?,
        Ok(id) => anstream::println!("{id}"),
        // There is no task: the process says why, and ends as this one would have.
        Err(_) => {
            let refused = child.wait_with_output().map_err(io)?;
            anstream::eprint!("{}", String::from_utf8_lossy(&refused.stderr));
            return Ok(Exit::of_child(refused.status.code()));
        }
    }
    Ok(Exit::Done)
}

/// What the process in the background does once it has the task.
async fn work(app: &App, workshop: &Workshop, mut handle: TaskHandle) -> CliResult {
    print_bytes(format!("{}\n", handle.id).as_bytes())?;
    // A session of its own, so that the end of the terminal is not the end of the task. It fails
    // only for a process that has one already.
    let _ = rustix::process::setsid();
    handle.wait().await?;
    Ok(Exit::of_task(&workshop.task(app, handle.id)?))
}

/// Shows a task's steps until it ends or waits for a person. Ctrl-C cancels it; a second one quits
/// at once and leaves it interrupted.
pub(crate) async fn follow(
    app: &App,
    workshop: &Workshop,
    mut handle: TaskHandle,
    mut live: broadcast::Receiver<Arc<Recorded>>,
) -> Result<Task, CliError> {
    let id = handle.id;
    let mut view = LiveView::new(app);
    if app.shows_progress() {
        anstream::eprintln!("{} {id}", style::label("task"));
    }
    let mut tick = tokio::time::interval(TICK);
    let mut asked_to_stop = false;
    let stream = StreamId::Task(id);
    let outcome = loop {
        tokio::select! {
            biased;
            event = live.recv() => match event {
                Ok(event) if event.stream == stream => view.see(&event),
                Ok(_) => {}
                // What was missed is in the journal, and `task trace` tells all of it.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => break handle.wait().await,
            },
            outcome = handle.wait() => break outcome,
            _ = tick.tick() => view.tick(SystemClock.now()),
            interrupt = tokio::signal::ctrl_c() => {
                view.clear();
                if asked_to_stop || interrupt.is_err() {
                    return Err(CliError::conflict(format!("left task {id} interrupted"))
                        .hint(format!("go on with `polity task resume {id}`")));
                }
                asked_to_stop = true;
                anstream::eprintln!("cancelling; once more to quit and leave it interrupted");
                workshop.runtime.cancel(id).await?;
            }
        }
    };
    while let Ok(event) = live.try_recv() {
        if event.stream == stream {
            view.see(&event);
        }
    }
    view.clear();
    outcome?;
    workshop.task(app, id)
}

/// Shows what came of a task: the result on stdout, what went wrong on stderr.
pub(crate) fn present(app: &App, task: &Task) -> CliResult {
    if app.json() {
        print_json(task)?;
        return Ok(Exit::of_task(task));
    }
    if let Some(result) = &task.result {
        print_bytes(format!("{}\n", result.trim_end_matches('\n')).as_bytes())?;
    }
    if let Some(error) = &task.error {
        let code = task.error_code.map_or("failed", ErrorCode::label);
        anstream::eprintln!("{}: {code}: {error}", style::error("error"));
        anstream::eprintln!("  {}: see `polity task trace {}`", style::hint("hint"), task.id);
    }
    Ok(Exit::of_task(task))
}
