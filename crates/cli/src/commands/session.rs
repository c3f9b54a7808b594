//! `polity session`: the conversations of sub-agents. Each is a task of its own, seen as its parent
//! sees it.

use polity_host::SessionSummary;
use polity_model::trace::shorten;

use crate::app::AppContext;
use crate::args::{SessionArgs, SessionCommand, SessionListArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::message::message_text;
use crate::view::{table, task as view};

/// The length of an input in a list.
const INPUT_CHARACTERS_MAX: usize = 48;

pub(crate) async fn session(app: &AppContext, command: SessionCommand) -> CliResult {
    match command {
        SessionCommand::List(args) => list(app, &args).await,
        SessionCommand::Show(args) => show(app, &args).await,
    }
}

async fn list(app: &AppContext, args: &SessionListArgs) -> CliResult {
    let queries = app.queries()?;
    let parent = match &args.task {
        Some(id) => Some(queries.find_task(id).await?),
        None => None,
    };
    let sessions = queries.sessions(parent.map(|row| row.id), args.limit).await?;
    let documents: Vec<_> = sessions.iter().map(SessionSummary::to_json).collect();
    app.print_list(&documents, "no sessions", || {
        let rows = sessions.iter().map(|session| {
            let SessionSummary { task, row, .. } = session;
            [
                row.id.to_string()[..8].to_owned(),
                session.status().label().to_owned(),
                row.assigned_agent.to_string(),
                row.parent_task_id.map(|id| id.to_string()[..8].to_owned()).unwrap_or_default(),
                view::time(row.created_at),
                row.message_count.to_string(),
                shorten(&task.description, INPUT_CHARACTERS_MAX),
            ]
        });
        table(["ID", "STATUS", "AGENT", "PARENT", "CREATED", "MESSAGES", "TASK"], rows)
    })
}

async fn show(app: &AppContext, args: &SessionArgs) -> CliResult {
    let queries = app.queries()?;
    let none = || {
        CliError::not_found(format!("there is no session {}", args.id))
            .hint("`polity session list` lists the sessions")
    };
    let row = queries.find_task(&args.id).await.map_err(CliError::from);
    let row = row.map_err(|error| if error.is_not_found() { none() } else { error })?;
    if row.parent_task_id.is_none() {
        return Err(CliError::not_found(format!(
            "there is no session {}: that task does not belong to a sub-agent",
            args.id
        ))
        .hint(format!("show it with `polity task show {}`", args.id)));
    }
    let (session, task) = queries.session(&row).await?;
    if app.json() {
        print_json(&session)?;
    } else {
        say!("{}", view::details(&task))?;
        say!("")?;
        for message in &session.message_history {
            say!("{}", message_text(message, None))?;
        }
    }
    Ok(ExitStatus::Done)
}
