//! `polity session`: the conversations of sub-agents. Each is a task of its own, seen as its parent
//! sees it.

use polity_model::machine::task::TaskStatus;
use polity_model::session::{SessionStatus, SubAgentSession, session_of_task};
use polity_model::task::Task;
use polity_model::trace::shorten;
use polity_store::{TaskFilter, TaskRow};
use serde_json::json;

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
    let filter = TaskFilter {
        parent: parent.map(|row| row.id),
        sub_tasks_only: true,
        limit: Some(args.limit),
        ..TaskFilter::default()
    };
    let mut sessions = Vec::new();
    for row in queries.task_rows(&filter).await? {
        sessions.push((queries.task_of(&row).await?, row));
    }
    let document = |(task, row): &(Task, TaskRow)| {
        json!({
            "session_id": session_of_task(row.id),
            "parent_task_id": row.parent_task_id,
            "agent_name": row.assigned_agent,
            "task_description": task.description,
            "message_count": row.message_count,
            "status": SessionStatus::from(row.status),
            "created_at": row.created_at,
        })
    };
    let documents: Vec<_> = sessions.iter().map(document).collect();
    app.print_list(&documents, "no sessions", || {
        let rows = sessions.iter().map(|(task, row)| {
            [
                row.id.to_string()[..8].to_owned(),
                SessionStatus::from(row.status).label().to_owned(),
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
    let parent_task_id = row.parent_task_id.ok_or_else(|| {
        CliError::not_found(format!(
            "there is no session {}: that task does not belong to a sub-agent",
            args.id
        ))
        .hint(format!("show it with `polity task show {}`", args.id))
    })?;
    let task = queries.task_of(&row).await?;
    let session = SubAgentSession {
        session_id: session_of_task(row.id),
        parent_task_id,
        agent_name: task.assigned_agent.clone(),
        task_description: task.description.clone(),
        // A workflow has the messages of its State, which its nodes produced.
        message_history: queries.task_state(row.id).await?.state().messages.messages().to_vec(),
        // A failed session has no summary; its parent gets the error.
        summary: task.result.clone().filter(|_| task.status == TaskStatus::Completed),
        status: task.status.into(),
        created_at: task.created_at,
    };
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
