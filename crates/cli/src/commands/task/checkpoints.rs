//! `polity task checkpoints` and `polity task show --at N`: checkpoints of a task.

use polity_engine::checkpoints::CheckpointSummary;
use polity_host::HomeQueries;
use polity_model::checkpoint::Checkpoint;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::review::HumanFeedback;
use polity_model::trace::shorten;
use polity_store::TaskRow;

use crate::app::AppContext;
use crate::args::TaskArgs;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::message::message_text;
use crate::view::{columns, style, task as view};

/// The most checkpoints that an error lists.
const NAMED_MAX: usize = 20;

/// The length of a message; the JSON output has all of it.
const MESSAGE_CHARACTERS_MAX: usize = 200;

/// The length of an answer in a list.
const ANSWER_CHARACTERS_MAX: usize = 60;

pub(crate) async fn checkpoints(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    if app.json() {
        print_json(&queries.checkpoints(row.id, |_| true).await?)?;
        return Ok(ExitStatus::Done);
    }
    print_summaries(&queries.checkpoint_summaries(row.id).await?, row.status)
}

/// Prints checkpoints as a table.
pub(crate) fn print_summaries(checkpoints: &[CheckpointSummary], status: TaskStatus) -> CliResult {
    if checkpoints.is_empty() {
        say!("no checkpoints")?;
        return Ok(ExitStatus::Done);
    }
    let mut heading = vec!["SEQUENCE", "POSITION", "MESSAGES", "CREATED"];
    let has_people = checkpoints.iter().any(|checkpoint| checkpoint.awaiting_human);
    heading.extend(has_people.then_some("REVIEW"));
    let rows = checkpoints.iter().map(|checkpoint| {
        let mut cells = vec![
            checkpoint.sequence.to_string(),
            checkpoint.position.clone(),
            checkpoint.message_count.to_string(),
            view::time(checkpoint.created_at),
        ];
        cells.extend(has_people.then(|| person(checkpoint, status)));
        cells
    });
    say!("{}", columns(&heading, rows))?;
    Ok(ExitStatus::Done)
}

/// The state of the review at a checkpoint, with its answer.
fn person(checkpoint: &CheckpointSummary, status: TaskStatus) -> String {
    match &checkpoint.human_feedback {
        Some(feedback) => shorten(&answered(feedback), ANSWER_CHARACTERS_MAX),
        None if !checkpoint.awaiting_human => String::new(),
        None if status == TaskStatus::AwaitingHuman => "open".to_owned(),
        None => "unanswered".to_owned(),
    }
}

/// The answer to a review, with the reviewer and the message.
fn answered(feedback: &HumanFeedback) -> String {
    let message = feedback.message.as_ref().map(|text| format!(": {text}"));
    format!("{} by {}{}", feedback.action, feedback.by, message.unwrap_or_default())
}

/// Shows one checkpoint of a task.
pub(super) async fn show(
    app: &AppContext,
    queries: &HomeQueries,
    row: &TaskRow,
    number: u32,
) -> CliResult {
    must_exist(queries, row, number).await?;
    let checkpoint = queries.checkpoints(row.id, |sequence| sequence == number).await?.pop();
    let checkpoint = checkpoint.ok_or_else(|| {
        CliError::not_found(format!("checkpoint {number} of task {} cannot be read", row.id))
    })?;
    app.print(&checkpoint, || details(&checkpoint))
}

/// Fails with a list of the checkpoints if this one does not exist.
pub(super) async fn must_exist(
    queries: &HomeQueries,
    row: &TaskRow,
    number: u32,
) -> Result<(), CliError> {
    let there = queries.checkpoint_rows(row.id).await?;
    if there.iter().any(|checkpoint| checkpoint.sequence == number) {
        return Ok(());
    }
    let there: Vec<_> = there.iter().map(|known| (known.sequence, &*known.node)).collect();
    Err(missing(row.id, number, &there))
}

/// The error about a checkpoint that a task does not have, with those that it has.
pub(crate) fn missing(id: TaskId, number: u32, there: &[(u32, &str)]) -> CliError {
    let error = CliError::not_found(format!("task {id} has no checkpoint {number}"));
    if there.is_empty() {
        return error.hint("it has none yet: one is taken after each step of a task");
    }
    let first = there.iter().take(NAMED_MAX);
    let mut names: Vec<_> = first.map(|(sequence, node)| format!("{sequence} ({node})")).collect();
    if there.len() > NAMED_MAX {
        names.push(format!("and so on to {}", there.len() - 1));
    }
    error.hint(format!("there are {}", names.join(", ")))
}

/// The details of a checkpoint, with shortened messages.
pub(crate) fn details(checkpoint: &Checkpoint) -> String {
    let field = |name: &str, value: &str| format!("{} {value}", style::dim(&format!("{name:12}")));
    let state = &checkpoint.state;
    let mut lines = vec![
        field("task", &checkpoint.task_id.to_string()),
        field("checkpoint", &style::label(&checkpoint.sequence.to_string())),
        field("position", &checkpoint.position),
        field("created", &view::time(checkpoint.created_at)),
    ];
    if checkpoint.awaiting_human {
        let answered = checkpoint.human_feedback.is_some();
        lines.push(field("review", if answered { "answered" } else { "open" }));
    }
    if let Some(feedback) = &checkpoint.human_feedback {
        lines.push(field("feedback", &answered(feedback)));
        for (path, value) in &feedback.state_updates {
            lines.push(field("", &format!("{path} = {value}")));
        }
    }
    lines.push(field("agent", state.current_agent.as_str()));
    if let Some(key) = &state.routing_key {
        lines.push(field("routing_key", key));
    }
    if let Some(action) = &state.next_action {
        lines.push(field("next_action", action));
    }
    for (index, (name, value)) in state.metadata.iter().enumerate() {
        let label = if index == 0 { "metadata" } else { "" };
        let value = shorten(&format!("{name} = {value}"), MESSAGE_CHARACTERS_MAX);
        lines.push(field(label, &value));
    }
    let messages = state.messages.messages();
    lines.push(field("messages", &messages.len().to_string()));
    let short =
        |message: &Message| format!("  {}", message_text(message, Some(MESSAGE_CHARACTERS_MAX)));
    lines.extend(messages.iter().map(short));
    lines.join("\n")
}
