//! `polity session`: the conversations of sub-agents. Each is a task of its own, seen as its parent
//! sees it.

use polity_engine::runtime::Beginning;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::session::{SessionStatus, SubAgentSession, session_of_task};
use polity_model::trace::{SubAgentSessionInfo, shorten};
use polity_store::{Store, StoreError, TaskFilter, TaskRow};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::{SessionArgs, SessionCommand, SessionListArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::message::spoken;
use crate::view::{harmless, print_json, say, table, task as view};

/// How much of what a sub-agent was given a list shows.
const INPUT_CHARACTERS_MAX: usize = 48;

pub(crate) fn session(app: &App, command: SessionCommand) -> CliResult {
    match command {
        SessionCommand::List(args) => list(app, &args),
        SessionCommand::Show(args) => show(app, &args),
    }
}

/// The sub-agents' tasks of a task, oldest first.
pub(crate) fn parts_of(store: &dyn Store, parent: TaskId) -> Result<Vec<TaskRow>, StoreError> {
    let mut rows =
        store.task_rows(&TaskFilter { parent: Some(parent), ..TaskFilter::default() })?;
    rows.reverse();
    Ok(rows)
}

/// A sub-agent's conversation, as its parent's trace shows it.
pub(crate) fn info(row: &TaskRow) -> SubAgentSessionInfo {
    SubAgentSessionInfo {
        session_id: session_of_task(row.id),
        agent: row.assigned_agent.clone(),
        message_count: row.message_count.into(),
        status: row.status.into(),
    }
}

fn list(app: &App, args: &SessionListArgs) -> CliResult {
    let store = app.reader()?;
    let parent = args.task.as_ref().map(|id| app.task_row(&store, id)).transpose()?;
    let filter = TaskFilter {
        parent: parent.map(|row| row.id),
        parts_only: true,
        limit: Some(args.limit),
        ..TaskFilter::default()
    };
    let mut sessions = Vec::new();
    for row in store.task_rows(&filter)? {
        sessions.push((app.task(&store, &row)?, row));
    }
    if app.json() {
        let listed: Vec<Value> = sessions
            .iter()
            .map(|(task, row)| {
                json!({
                    "session_id": session_of_task(row.id),
                    "parent_task_id": row.parent_task_id,
                    "agent_name": row.assigned_agent,
                    "task_description": task.description,
                    "message_count": row.message_count,
                    "status": SessionStatus::from(row.status),
                    "created_at": row.created_at,
                })
            })
            .collect();
        print_json(&listed)?;
    } else if sessions.is_empty() {
        say!("no sessions")?;
    } else {
        let rows = sessions.iter().map(|(task, row)| {
            [
                row.id.to_string()[..8].to_owned(),
                SessionStatus::from(row.status).label().to_owned(),
                row.assigned_agent.to_string(),
                row.parent_task_id.map(|id| id.to_string()[..8].to_owned()).unwrap_or_default(),
                view::time(row.created_at),
                row.message_count.to_string(),
                harmless(&shorten(&task.description, INPUT_CHARACTERS_MAX)),
            ]
        });
        let head = ["ID", "STATUS", "AGENT", "PARENT", "CREATED", "MESSAGES", "TASK"];
        say!("{}", table(head, rows))?;
    }
    Ok(Exit::Done)
}

/// All that was said. Of a workflow that are the messages of its State, which it puts together
/// from what its nodes say.
fn said(store: &dyn Store, id: TaskId) -> Result<Vec<Message>, CliError> {
    let Beginning { state, rest, .. } = Beginning::of(store, id)?;
    let state = state
        .following(rest)
        .map_err(|broken| CliError::not_found(format!("task {id}: {broken}")))?;
    Ok(state.state().messages.messages().to_vec())
}

fn show(app: &App, args: &SessionArgs) -> CliResult {
    let store = app.reader()?;
    let none = || {
        CliError::not_found(format!("there is no session {}", args.id))
            .hint("`polity session list` shows the sessions there are")
    };
    let row = app
        .task_row(&store, &args.id)
        .map_err(|error| if error.is_not_found() { none() } else { error })?;
    let parent_task_id = row.parent_task_id.ok_or_else(|| {
        CliError::not_found(format!("there is no session {}: that task is no sub-agent's", args.id))
            .hint(format!("look at it with `polity task show {}`", args.id))
    })?;
    let task = app.task(&store, &row)?;
    let session = SubAgentSession {
        session_id: session_of_task(row.id),
        parent_task_id,
        agent_name: task.assigned_agent.clone(),
        task_description: task.description.clone(),
        message_history: said(&store, row.id)?,
        // Of one that failed, its parent is told why, and gets no summary.
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
            say!("{}", spoken(message, None))?;
        }
    }
    Ok(Exit::Done)
}
