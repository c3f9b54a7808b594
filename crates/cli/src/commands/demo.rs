//! `polity demo`: the main features on embedded examples, without a key or network.

use std::path::{Path, PathBuf};

use polity_definition::Home;
use polity_engine::commands::{AnswerReview, CreateTask};
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_host::{Host, find_assignee, is_home};
use polity_model::event::JournalPosition;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use polity_model::task::Task;

use super::init::{ExampleFiles, NEWSROOM, SOCIETY, SUPERVISOR, WORKSHOP, write_home};
use super::run::{follow, present};
use super::{review, sim, task};
use crate::app::{AppContext, block_on, close};
use crate::args::{GlobalOptions, SimCommand, SimRunArgs, ThreadArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{note, print_json, say};
use crate::view::style;

const FILES: ExampleFiles = &[
    ("polity.yaml", include_str!("../../../../examples/02-retries/polity.yaml")),
    (
        "agents/forecaster.yaml",
        include_str!("../../../../examples/02-retries/agents/forecaster.yaml"),
    ),
    (
        "scripts/forecaster.yaml",
        include_str!("../../../../examples/02-retries/scripts/forecaster.yaml"),
    ),
    ("agents/librarian.yaml", include_str!("../../../../examples/03-tools/agents/librarian.yaml")),
    (
        "scripts/librarian.yaml",
        include_str!("../../../../examples/03-tools/scripts/librarian.yaml"),
    ),
    (
        "config/mcp_servers.yaml",
        include_str!("../../../../examples/03-tools/config/mcp_servers.yaml"),
    ),
    ("servers/notes.py", include_str!("../../../../examples/03-tools/servers/notes.py")),
];

pub(crate) fn demo(options: &GlobalOptions) -> CliResult {
    let folder = match &options.home {
        Some(home) => home.clone(),
        None => fresh_folder(),
    };
    if is_home(&folder) {
        return Err(CliError::conflict(format!("{} is already a home", folder.display()))
            .hint("nothing was changed; without --home the demo creates its own folder"));
    }
    write_home(&folder, &[FILES, SUPERVISOR, NEWSROOM, WORKSHOP, SOCIETY].concat())?;
    let app = AppContext::new(GlobalOptions { home: Some(folder.clone()), ..options.clone() })?;
    tell(&app, &style::dim(&format!("created the home {}", folder.display())));
    let home = app.definitions()?;
    let tasks = block_on(async {
        let host = Host::open(&app.context, &home).await?;
        let shown = show(&app, &host, &home).await;
        close(host).await;
        shown
    })?;
    let exit = tasks.iter().map(ExitStatus::of_task).find(|exit| *exit != ExitStatus::Done);
    if app.json() {
        print_json(&tasks)?;
        return Ok(exit.unwrap_or(ExitStatus::Done));
    }
    tell(
        &app,
        "\n7. a simulation: 25 agents scroll, reply and rest; some join or leave during the run\n",
    );
    let society = simulate(&app, "society")?;
    where_next(&folder, &tasks)?;
    Ok(exit.unwrap_or(society))
}

fn simulate(app: &AppContext, scenario: &str) -> CliResult {
    let args = SimRunArgs {
        scenario: scenario.to_owned(),
        turns: None,
        agents: None,
        seed: None,
        threads: ThreadArgs { threads: None },
        out: None,
        set: Vec::new(),
        strict: false,
    };
    sim::sim(app, SimCommand::Run(args))
}

/// Runs the parts of the demo and returns their tasks.
async fn show(app: &AppContext, host: &Host, home: &Home) -> Result<Vec<Task>, CliError> {
    tell(
        app,
        "\n1. an agent answers a question; its model is overloaded at first, so the call is \
         retried\n",
    );
    let forecast = run(app, host, home, "forecaster", "What will the weather be in Oslo?").await?;
    let mut tasks = vec![show_result(app, host, forecast).await?];
    tell(
        app,
        "\n2. an agent delegates: two sub-agents find facts in parallel, a third writes the \
         report\n",
    );
    let report = run(app, host, home, "supervisor", "A report on rain and snow").await?;
    tasks.push(show_result(app, host, report).await?);
    tell(
        app,
        "\n3. a workflow: a reporter finds facts, an author writes, and an editor reviews the \
         draft\n",
    );
    let article = run(app, host, home, "newsroom", "rain").await?;
    let article = decided(app, host, article).await?;
    tasks.push(show_result(app, host, article).await?);
    tell(
        app,
        "\n4. a command-line program as an agent: supervised, measured, its answer parsed from \
         its output\n",
    );
    let judged = run(app, host, home, "judge", "a few words").await?;
    tasks.push(show_result(app, host, judged).await?);
    if !has_python() {
        tell(app, "\n5. skipped: the MCP server of this part needs python3, which is not in PATH");
        return Ok(tasks);
    }
    tell(app, "\n5. an agent saves a note with a tool of an MCP server\n");
    let noted = run(app, host, home, "librarian", "note rain: It rains in Oslo.").await?;
    tasks.push(show_result(app, host, noted).await?);
    tell(app, "\n6. the agent wants to delete the note, which needs approval\n");
    let deleted = run(app, host, home, "librarian", "forget rain").await?;
    let deleted = decided(app, host, deleted).await?;
    tasks.push(show_result(app, host, deleted).await?);
    Ok(tasks)
}

/// Approves the open review of a task, if any, and resumes it.
async fn decided(app: &AppContext, host: &Host, task: Task) -> Result<Task, CliError> {
    let Some(review) = host.queries().open_review(task.id).await? else { return Ok(task) };
    tell(app, &format!("\n{}\n\n   the demo approves this review\n", review::details(&review)));
    let answer = AnswerReview {
        checkpoint_id: review.checkpoint_id,
        verdict: ReviewVerdict::Approve,
        message: None,
        by: "the demo".to_owned(),
        state_updates: StateUpdates::default(),
    };
    host.runtime().answer(task.id, answer).await?;
    let live = host.runtime().subscribe();
    let handle = host.runtime().adopt(task.id).await?;
    follow(app, host, handle, live, JournalPosition::default()).await
}

async fn run(
    app: &AppContext,
    host: &Host,
    home: &Home,
    agent: &str,
    input: &str,
) -> Result<Task, CliError> {
    let create = CreateTask::new(find_assignee(&app.context, home, agent)?, input);
    let live = host.runtime().subscribe();
    let handle = host.runtime().create(create).await?;
    follow(app, host, handle, live, JournalPosition::default()).await
}

/// Shows the result of a task and its trace.
async fn show_result(app: &AppContext, host: &Host, task: Task) -> Result<Task, CliError> {
    if app.json() {
        return Ok(task);
    }
    present(&app.options, &task)?;
    let row = host.queries().task_row(task.id).await?;
    say!("\n{}", task::trace_text(&task::traced_task(host.queries(), &row).await?))?;
    Ok(task)
}

fn where_next(folder: &Path, tasks: &[Task]) -> Result<(), CliError> {
    let (polity, home) = (program(), folder.display());
    say!("\n{}", style::label("Where to look next"))?;
    if let Some(task) = tasks.last() {
        say!("  {polity} --home {home} task show {}", task.id)?;
    }
    say!("  {polity} --home {home} run forecaster \"What will the weather be in Bergen?\"")?;
    say!("  {polity} --home {home} run newsroom \"snow\"")?;
    say!("  {polity} --home {home} tool list")?;
    say!("  {polity} --home {home} execution list")?;
    say!("  {polity} --home {home} sim run society --turns 1000 --seed 7")?;
    say!("  {polity} --home {home} cost")?;
    say!("  {polity} init hello && {polity} --home hello run greeter \"Ada\"")
}

fn tell(app: &AppContext, text: &str) {
    if app.shows_progress() {
        note!("{text}");
    }
}

/// True if `python3` is in PATH, which the demo's MCP server needs.
fn has_python() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("python3").is_file())
}

/// The command name of this process, so that the shown commands can be copied.
fn program() -> String {
    std::env::args_os()
        .next()
        .map_or_else(|| "polity".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn fresh_folder() -> PathBuf {
    let [a, b, c, d, ..] = SystemEntropy.seed();
    std::env::temp_dir().join(format!("polity-demo-{a:02x}{b:02x}{c:02x}{d:02x}"))
}
