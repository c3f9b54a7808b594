//! A review with everything needed to decide, and the commands that answer it.

use polity_model::name::Name;
use polity_model::review::{Review, ReviewAction, ReviewPreview, ReviewSubject};
use serde_json::Value;

use crate::view::{strip_control, style, task as view};

/// A review as text.
pub(crate) fn details(review: &Review) -> String {
    let field = |name: &str, value: &str| format!("{} {value}", style::dim(&format!("{name:10}")));
    let indented = |text: &str| text.replace('\n', "\n           ");
    let mut lines = vec![
        field("task", &style::label(&review.task_id.to_string())),
        field(if review.tool.is_some() { "agent" } else { "node" }, &review.position),
    ];
    if review.place != review.position {
        lines.push(field("place", &review.place));
    }
    if review.top_task_id != review.task_id {
        lines.push(field("part of", &review.top_task_id.to_string()));
    }
    if let Some(tool) = &review.tool {
        lines.push(field("tool", &strip_control(tool)));
    }
    if let Some(arguments) = &review.arguments {
        let arguments =
            serde_json::to_string_pretty(&Value::Object(arguments.clone())).unwrap_or_default();
        lines.push(field("arguments", &strip_control(&indented(&arguments))));
    }
    if review.tool.is_none() {
        lines.push(field("question", &indented(&strip_control(&review.question))));
    }
    lines.push(field("since", &view::time(review.created_at)));
    if let Some(deadline) = review.deadline {
        lines.push(field("until", &format!("{}, {}", view::time(deadline), then(review))));
    }
    if let ReviewSubject::Doubt { .. } = review.subject {
        let doubt = "the tool was being called when the process ended; no one knows whether it had \
                     its effect";
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
        Some(action) => format!("{when} it counts as {}", action.label()),
        None => format!("{when} the task fails"),
    }
}

/// The possible commands, each with its effect.
fn commands(review: &Review) -> Vec<(String, String)> {
    let id = &review.task_id.to_string()[..8];
    if review.expired {
        let follows = match review.default_action {
            Some(action) => {
                format!("no answer counts any more; it goes on with {}", action.label())
            }
            None => "no answer counts any more; the task fails".to_owned(),
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
            "the workflow goes on; no node follows".to_owned()
        }
        ReviewPreview::LeadsTo(nodes) => {
            let nodes: Vec<&str> = nodes.iter().map(Name::as_str).collect();
            format!("the workflow goes on with {}", nodes.join(", "))
        }
        ReviewPreview::FailsTask(why) => format!("fails the task: {}", strip_control(why)),
        ReviewPreview::FailsBranch(why) => format!("fails this branch: {}", strip_control(why)),
    }
}

/// The answers to a kind of question: action, flags and effect.
fn choices(subject: &ReviewSubject) -> Vec<(ReviewAction, &'static str, &'static str)> {
    use ReviewAction::{Approve, Modify, Reject};
    match subject {
        ReviewSubject::Approval { .. } => vec![
            (Approve, "", "the tool is called"),
            (Modify, "--set NAME=VALUE", "it is called with other arguments"),
            (Reject, "--message TEXT", "it is not called, and the model is told why"),
        ],
        ReviewSubject::Doubt { .. } | ReviewSubject::RunDoubt { .. } => vec![
            (Approve, "--retry", "it is called again"),
            (Approve, "--skip-with RESULT", "it is not called again; this is its result"),
            (Reject, "--message TEXT", "the task fails"),
        ],
        ReviewSubject::RemoteQuestion { .. } => vec![
            (Approve, "--message TEXT", "the agent is told this, and goes on"),
            (Reject, "--message TEXT", "the task fails, and the agent's own is ended"),
        ],
        ReviewSubject::Node { .. } => vec![
            (Approve, "--message TEXT", "the workflow goes on; routing_key is approve"),
            (Modify, "--set metadata.NAME=VALUE", "it goes on with another State; key modify"),
            (Reject, "--message TEXT", "an edge for reject is taken, or the task fails"),
        ],
        ReviewSubject::Checkpoint { .. } => vec![
            (Approve, "", "the node runs"),
            (Modify, "--set metadata.NAME=VALUE", "it runs on another State"),
            (Reject, "--message TEXT", "the task fails"),
        ],
    }
}
