//! `polity task fork`: a new task that continues from a checkpoint of another.

use polity_definition::Home;
use polity_engine::driver::RunOverrides;
use polity_engine::pinned::Assignee;
use polity_engine::runtime::ForkRequest;
use polity_host::recording::{CassetteFile, Recording, RecordingScope, RecordingSubject};
use polity_host::{DefinitionChange, Host, definition_changes, find_assignee};
use polity_store::TaskRow;

use crate::app::{AppContext, close};
use crate::args::{DefinitionSource, ForkArgs};
use crate::commands::run::{background, perform};
use crate::commands::set_option;
use crate::commands::trust::trust_if_asked;
use crate::error::{CliError, CliResult};
use crate::terminal::note;
use crate::view::comparison::kind_in_words;

pub(crate) async fn fork(app: &AppContext, args: &ForkArgs) -> CliResult {
    let background = background::is_background();
    if args.detach && !background {
        return background::detach(app).await;
    }
    if background {
        background::leave_terminal();
    }
    let queries = app.queries()?;
    let row = queries.find_task(&args.task.id).await?;
    super::checkpoints::must_exist(&queries, &row, args.from).await?;
    let updates = set_option::updates(&args.set)?;
    let home = app.definitions()?;
    let definitions = current_definitions(app, &home, &row, args.definitions).await?;
    let agent = row.assigned_agent.as_str();
    // A cassette recorded by the fork has only its own calls; one of the original task has more.
    let scope = match args.recording.replay {
        Some(_) => RecordingScope::Remainder,
        None => RecordingScope::WholeTask,
    };
    let file = args.recording.request();
    let file = file.map(|request| CassetteFile::open(request, agent, scope)).transpose()?;
    let input = queries.task_of(&row).await?.description;
    let run = RecordingSubject { agent, input: &input, overrides: &RunOverrides::default() };
    let (drivers, recording) = Recording::open(file, &app.context, &home, run)?;
    let host = Host::open_with(&app.context, &home, drivers).await?;
    trust_if_asked(&host, row.id, args.trust).await?;
    let request = ForkRequest { definitions, ..ForkRequest::new(row.id, args.from, updates) };
    let fork = host.runtime().fork(request);
    let outcome = Box::pin(perform(app, &host, &recording, background, fork)).await;
    close(host).await;
    outcome
}

/// The definitions of a task's agent or workflow as they are now, if they are asked for. Shows their
/// difference to the pinned ones.
pub(crate) async fn current_definitions(
    app: &AppContext,
    home: &Home,
    row: &TaskRow,
    source: Option<DefinitionSource>,
) -> Result<Option<Assignee>, CliError> {
    let Some(DefinitionSource::Current) = source else { return Ok(None) };
    let current = find_assignee(&app.context, home, row.assigned_agent.as_str())?;
    if app.shows_progress() {
        let changes = definition_changes(&**app.queries()?.store(), row.id, &current).await?;
        if changes.is_empty() {
            note!("the definitions are the same as those that the task has pinned");
        }
        for DefinitionChange { kind, name, diff } in changes {
            note!("{} {name} has changed:\n{}", kind_in_words(kind), diff.trim_end());
        }
    }
    Ok(Some(current))
}
