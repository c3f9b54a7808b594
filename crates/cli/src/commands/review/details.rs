//! A review with everything needed to decide, and the commands that answer it.

use polity_model::name::Name;
use polity_model::review::{Review, ReviewAction, ReviewPreview, ReviewSubject};
use serde_json::Value;

use crate::view::{style, task as view};

/// A review as text.
pub(crate) fn details(review: &Review) -> String {
    let field = |name: &str, value: &str| format!("{} {value}", style::dim(&format!("{name:10}")));
    let indented = |text: &str| text.replace('\n', "\n           ");
    let mut lines = vec![
        field("task", &style::label(&review.task_id.to_string())),
        field(if review.tool.is_some() { "agent" } else { "node" }, &review.position),
    ];
    if review.place != review.position {
        lines.push(field("path", &review.place));
    }
    if review.top_task_id != review.task_id {
        lines.push(field("part of", &review.top_task_id.to_string()));
    }
    if let Some(tool) = &review.tool {
        lines.push(field("tool", tool));
    }
    if let Some(arguments) = &review.arguments {
        let arguments =
            serde_json::to_string_pretty(&Value::Object(arguments.clone())).unwrap_or_default();
        lines.push(field("arguments", &indented(&arguments)));
    }
    if review.tool.is_none() {
        lines.push(field("question", &indented(&review.question)));
    }
    lines.push(field("since", &view::time(review.created_at)));
    if let Some(deadline) = review.deadline {
        lines.push(field("until", &format!("{}, {}", view::time(deadline), then(review))));
    }
    if let ReviewSubject::Doubt { .. } = review.subject {
        let doubt =
            "the process ended during the call, so it is unknown whether the tool took effect";
        lines.push(field("in doubt", doubt));
    }
    lines.push(String::new());
    let commands = commands(review);
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, then) in commands {
        lines.push(format!("  {command:width$}  {}", style::dim(&then)));
    }
    lines.join("\n")
}

/// The effect of the deadline.
fn then(review: &Review) -> String {
    let when = if review.expired { "which has passed:" } else { "then" };
    match review.default_action {
        Some(action) => format!("{when} the default action is {}", action.label()),
        None => format!("{when} the task fails"),
    }
}

/// The possible commands, each with its effect.
fn commands(review: &Review) -> Vec<(String, String)> {
    let id = &review.task_id.to_string()[..8];
    if review.expired {
        let follows = match review.default_action {
            Some(action) => {
                format!(
                    "the deadline has passed; continues with the default action {}",
                    action.label()
                )
            }
            None => "the deadline has passed; fails the task".to_owned(),
        };
        return vec![(format!("polity task resume {id}"), follows)];
    }
    let choices = choices(&review.subject).into_iter();
    let commands = choices.map(|(action, rest, then)| {
        let command = format!("polity review {} {id} {rest}", action.label());
        let known = review.answers.iter().find(|answer| answer.action == action);
        let then = known.map_or_else(|| then.to_owned(), |answer| in_words(&answer.preview));
        (command.trim_end().to_owned(), then)
    });
    commands.collect()
}

fn in_words(outlook: &ReviewPreview) -> String {
    match outlook {
        ReviewPreview::LeadsTo(nodes) if nodes.is_empty() => {
            "continues; no node follows".to_owned()
        }
        ReviewPreview::LeadsTo(nodes) => {
            let nodes: Vec<&str> = nodes.iter().map(Name::as_str).collect();
            format!("continues with {}", nodes.join(", "))
        }
        ReviewPreview::FailsTask(why) => format!("fails the task: {why}"),
        ReviewPreview::FailsBranch(why) => format!("fails this branch: {why}"),
    }
}

/// The answers to a kind of question: action, flags and effect.
fn choices(subject: &ReviewSubject) -> Vec<(ReviewAction, &'static str, &'static str)> {
    use ReviewAction::{Approve, Modify, Reject};
    match subject {
        ReviewSubject::Approval { .. } => vec![
            (Approve, "", "calls the tool"),
            (Modify, "--set NAME=VALUE", "calls it with changed arguments"),
            (Reject, "--message TEXT", "does not call it; the model gets the message"),
        ],
        ReviewSubject::Doubt { .. } | ReviewSubject::RunDoubt { .. } => vec![
            (Approve, "--retry", "calls it again"),
            (Approve, "--skip-with RESULT", "does not call it again; uses RESULT as its result"),
            (Reject, "--message TEXT", "fails the task"),
        ],
        ReviewSubject::RemoteQuestion { .. } => vec![
            (Approve, "--message TEXT", "sends this answer to the agent, and continues"),
            (Reject, "--message TEXT", "fails the task, and cancels the remote task"),
        ],
        ReviewSubject::Node { .. } => vec![
            (Approve, "--message TEXT", "continues; routing_key is approve"),
            (
                Modify,
                "--set metadata.NAME=VALUE",
                "continues with the changed State; routing_key is modify",
            ),
            (Reject, "--message TEXT", "takes an edge for reject, or fails the task"),
        ],
        ReviewSubject::Checkpoint { .. } => vec![
            (Approve, "", "runs the node"),
            (Modify, "--set metadata.NAME=VALUE", "runs it with the changed State"),
            (Reject, "--message TEXT", "fails the task"),
        ],
    }
}
