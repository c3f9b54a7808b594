//! `polity task fork`: a new task that continues from a checkpoint of another.

use polity_engine::driver::RunOverrides;
use polity_host::Host;
use polity_host::recording::{CassetteFile, Recording, RecordingScope, RecordingSubject};

use crate::app::{AppContext, close};
use crate::args::ForkArgs;
use crate::commands::run::{background, perform};
use crate::commands::set_option;
use crate::commands::trust::trust_if_asked;
use crate::error::CliResult;

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
    let fork = host.runtime().fork(row.id, args.from, updates);
    let outcome = perform(app, &host, &recording, background, fork).await;
    close(host).await;
    outcome
}
