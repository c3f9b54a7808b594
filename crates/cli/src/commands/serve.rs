//! `polity serve`: serves a home over HTTP until it is stopped.

use std::path::Path;

use polity_server::{Server, ServerOptions};
use serde_json::json;

use crate::app::AppContext;
use crate::args::ServeArgs;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::signals::StopSignals;
use crate::terminal::{print_json, say};

pub(crate) fn serve(app: &AppContext, args: &ServeArgs) -> CliResult {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("start", Path::new("the runtime"), &error))?;
    let outcome = runtime.block_on(run(app, args));
    // A simulation in a long turn is interrupted, and resumed from its newest checkpoint.
    runtime.shutdown_background();
    outcome
}

async fn run(app: &AppContext, args: &ServeArgs) -> CliResult {
    let mut signals = StopSignals::listen()?;
    let server = Server::open(&app.context, ServerOptions { listen: args.listen }).await?;
    if app.json() {
        print_json(&json!({"url": server.url(), "pid": std::process::id()}))?;
    } else {
        say!("serving {} at {}", app.folder().root().display(), server.url())?;
        say!("  the API is described at {}/api/openapi.json", server.url())?;
    }
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (abort, aborted) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        signals.next().await;
        // The server waits for both as long as it runs.
        let _ = stop.send(());
        signals.next().await;
        let _ = abort.send(());
    });
    let wait = async |signal: tokio::sync::oneshot::Receiver<()>| {
        // The sender is dropped only with the runtime.
        let _ = signal.await;
    };
    server.run(wait(stopped), wait(aborted)).await;
    Ok(ExitStatus::Done)
}
