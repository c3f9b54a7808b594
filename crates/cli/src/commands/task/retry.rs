//! `polity task retry`: a new task that continues a failed or cancelled one.

use polity_engine::driver::RunOverrides;
use polity_engine::runtime::RetryRequest;
use polity_host::Host;
use polity_host::recording::{CassetteFile, Recording, RecordingScope, RecordingSubject};
use polity_model::event::RaisedLimits;

use super::fork::current_definitions;
use crate::app::{AppContext, close};
use crate::args::RetryArgs;
use crate::commands::run::{background, perform};
use crate::commands::trust::trust_if_asked;
use crate::error::CliResult;

pub(crate) async fn retry(app: &AppContext, args: &RetryArgs) -> CliResult {
    let background = background::is_background();
    if args.detach && !background {
        return background::detach(app).await;
    }
    if background {
        background::leave_terminal();
    }
    let queries = app.queries()?;
    let row = queries.find_task(&args.task.id).await?;
    let home = app.definitions()?;
    let definitions = current_definitions(app, &home, &row, args.definitions).await?;
    let agent = row.assigned_agent.as_str();
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
    let raised = RaisedLimits {
        max_cost_usd: args.max_cost_usd,
        max_tokens: args.max_tokens,
        timeout_seconds: args.timeout,
    };
    let retry =
        host.runtime().retry(RetryRequest { task: row.id, raised, definitions, request: None });
    let outcome = Box::pin(perform(app, &host, &recording, background, retry)).await;
    close(host).await;
    outcome
}
