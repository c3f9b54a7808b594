//! Tasks as text.

use jiff::Timestamp;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::task::{ForkedFrom, Task};
use polity_model::trace::shorten;
use polity_model::usage::UsageReport;

use super::{columns, duration, style};

/// The length of an input in a list.
const INPUT_CHARACTERS_MAX: usize = 48;

/// The length of an input or result; the JSON output has all of it.
const TEXT_CHARACTERS_MAX: usize = 10_000;

/// The optional column of a task list.
pub(crate) enum TaskListColumn<'a> {
    /// The number of parts of each task.
    Parts(&'a [u64]),
    /// The parent of each task.
    Parent,
}

/// Tasks as a table. A column that would be empty is left out.
pub(crate) fn list(tasks: &[Task], column: &TaskListColumn<'_>) -> String {
    let cells: Vec<String> = match column {
        TaskListColumn::Parts(parts) => parts
            .iter()
            .map(|count| if *count == 0 { String::new() } else { count.to_string() })
            .collect(),
        TaskListColumn::Parent => {
            tasks.iter().map(|task| task.parent_task_id.map(short).unwrap_or_default()).collect()
        }
    };
    let name = match column {
        TaskListColumn::Parts(_) => "PARTS",
        TaskListColumn::Parent => "PARENT",
    };
    let has_column = cells.iter().any(|cell| !cell.is_empty());
    let mut heading = vec!["ID", "STATUS", "AGENT", "CREATED", "TOOK", "INPUT"];
    if has_column {
        heading.insert(3, name);
    }
    let rows = tasks.iter().zip(cells).map(|(task, cell)| {
        let mut row = vec![
            short(task.id),
            status_text(task),
            // The prefix marks a part.
            match task.parent_task_id {
                Some(_) => format!("└ {}", task.assigned_agent),
                None => task.assigned_agent.to_string(),
            },
            time(task.created_at),
            took(task).unwrap_or_default(),
            shorten(&task.description, INPUT_CHARACTERS_MAX),
        ];
        if has_column {
            row.insert(3, cell);
        }
        row
    });
    columns(&heading, rows)
}

/// The first eight characters of an id.
pub(crate) fn short(id: TaskId) -> String {
    id.to_string()[..8].to_owned()
}

/// The details of a task.
pub(crate) fn details(task: &Task) -> String {
    let mut lines = vec![
        field("task", &style::label(&task.id.to_string())),
        field("agent", task.assigned_agent.as_str()),
        field("status", &style::status(task.status, &status_text(task))),
    ];
    lines.extend(on_hold(task).or_else(|| retry_text(task)).map(|next| field("next", &next)));
    lines.push(field("input", &cut(&task.description)));
    if let Some(result) = &task.result {
        let label = if task.status == TaskStatus::Completed { "result" } else { "so far" };
        lines.push(field(label, &cut(result)));
    }
    if let Some(error) = &task.error {
        let code = task.error_code.map(|code| format!("{code}: ")).unwrap_or_default();
        lines.push(field("error", &style::error(&format!("{code}{error}"))));
    }
    if let Some(parent) = task.parent_task_id {
        lines.push(field("part of", &parent.to_string()));
    }
    lines.extend(origin_text(task).map(|origin| field("origin", &origin)));
    if let Some(other) = task.shared_with {
        lines.push(field("shared", &format!("with task {other}, which has the same request")));
    }
    if !task.parameters.is_empty() {
        let parameters: Vec<_> =
            task.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(field("parameters", &parameters.join(" ")));
    }
    if let Some(class) = &task.class {
        lines.push(field("class", class));
    }
    if let Some(days) = task.retention_days {
        lines.push(field("kept for", &super::count(days as usize, "day")));
    }
    lines.push(field("created", &time(task.created_at)));
    if let Some(took) = took(task) {
        lines.push(field("took", &took));
    }
    lines.push(field("used", &used(task)));
    lines.join("\n")
}

/// The task that this one continues, if it is a fork or retry.
pub(crate) fn origin_text(task: &Task) -> Option<String> {
    if let Some(earlier) = task.retry_of {
        return Some(format!("retry of {}", short(earlier)));
    }
    let ForkedFrom { task_id, checkpoint } = task.forked_from?;
    let at = checkpoint.map(|number| format!(" at checkpoint {number}")).unwrap_or_default();
    Some(format!("forked from {}{at}", short(task_id)))
}

/// The way on after compensations: checkpoints build on nodes that were undone.
pub(crate) fn undone_hint(task: &Task) -> String {
    format!(
        "its finished nodes were undone, so run it again: `polity run {} INPUT`",
        task.assigned_agent
    )
}

/// The command that continues a failed or cancelled task. A part is retried with its whole.
fn retry_text(task: &Task) -> Option<String> {
    let can_be_retried = match task.status {
        TaskStatus::Failed | TaskStatus::Cancelled => task.parent_task_id.is_none(),
        TaskStatus::Pending
        | TaskStatus::Running
        | TaskStatus::AwaitingHuman
        | TaskStatus::Completed => false,
    };
    let id = short(task.id);
    if can_be_retried && task.undone {
        return Some(undone_hint(task));
    }
    can_be_retried.then(|| format!("continue from before the failure: `polity task retry {id}`"))
}

/// The usage of a task, and of its tree if that differs.
pub(crate) fn used(task: &Task) -> String {
    let told = |usage: &UsageReport| {
        let cost = match usage.cost_usd {
            None => "cost unknown".to_owned(),
            Some(_) => usage.cost_text(),
        };
        format!("{}, {cost}", usage.tokens_text())
    };
    if task.usage == task.total_usage {
        return told(&task.usage);
    }
    format!("{}; with sub-agents {}", told(&task.usage), told(&task.total_usage))
}

fn field(name: &str, value: &str) -> String {
    format!("{} {value}", style::dim(&format!("{name:10}")))
}

fn cut(text: &str) -> String {
    let text = &text.replace('\n', "\n           ");
    match text.char_indices().nth(TEXT_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// The status, marked if the task can be resumed.
pub(crate) fn status_text(task: &Task) -> String {
    match (task.interrupted, task.released) {
        (true, true) => format!("{} (ready to resume)", task.status),
        (true, false) => format!("{} (interrupted)", task.status),
        (false, _) => task.status.to_string(),
    }
}

/// The reason and the command for a task that can be resumed.
fn on_hold(task: &Task) -> Option<String> {
    if task.needs_trust {
        let id = short(task.id);
        return Some(format!("imported; `polity task resume {id}` lists what it would run"));
    }
    let why = match (task.interrupted, task.released) {
        (true, true) => "no process runs it",
        (true, false) => "its process has ended",
        (false, _) => return None,
    };
    Some(format!("{why}; resume it with `polity task resume {}`", short(task.id)))
}

/// The duration of an ended task.
pub(crate) fn took(task: &Task) -> Option<String> {
    let ms = task.completed_at?.duration_since(task.started_at?).as_millis();
    Some(duration(u64::try_from(ms).ok()?))
}

/// A readable timestamp.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}
