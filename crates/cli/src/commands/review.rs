//! `polity review`: what waits for a person, and what the person decides.

mod answer;

use std::sync::Arc;

use polity_engine::runtime::load;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::{Review, ReviewSubject};
use polity_store::{Store, TaskFilter};
use serde_json::Value;

use crate::app::{App, block_on};
use crate::args::{ReviewCommand, TaskArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{columns, harmless, print_json, say, style, task as view};

pub(crate) fn review(app: &App, command: ReviewCommand) -> CliResult {
    match command {
        ReviewCommand::List => list(app),
        ReviewCommand::Show(args) => show(app, &args),
        ReviewCommand::Approve(args) => answer::approve(app, args),
        ReviewCommand::Reject(args) => answer::reject(app, args),
        ReviewCommand::Modify(args) => answer::modify(app, args),
    }
}

fn list(app: &App) -> CliResult {
    let store: Arc<dyn Store> = Arc::new(app.reader()?);
    let waiting = TaskFilter { statuses: vec![TaskStatus::AwaitingHuman], ..TaskFilter::default() };
    let mut reviews = Vec::new();
    let mut exit = Exit::Done;
    // The one that has waited longest comes first.
    for row in store.task_rows(&waiting)?.iter().rev() {
        match block_on(open(&store, row.id)) {
            Ok(review) => reviews.extend(review),
            // One that cannot be read must not hide the others.
            Err(error) => {
                error.print(app.json());
                exit = Exit::Failed;
            }
        }
    }
    if app.json() {
        print_json(&reviews)?;
    } else if reviews.is_empty() {
        say!("nothing waits for a person")?;
    } else {
        let until = |review: &Review| review.deadline.map(view::time).unwrap_or_default();
        let has_deadlines = reviews.iter().any(|review| review.deadline.is_some());
        let mut heading = vec!["TASK", "SINCE", "KIND", "QUESTION"];
        if has_deadlines {
            heading.insert(2, "UNTIL");
        }
        let rows = reviews.iter().map(|review| {
            let mut row = vec![
                review.task_id.to_string()[..8].to_owned(),
                view::time(review.created_at),
                kind(&review.subject).to_owned(),
                harmless(&review.question),
            ];
            if has_deadlines {
                row.insert(2, until(review));
            }
            row
        });
        say!("{}", columns(&heading, rows))?;
    }
    Ok(exit)
}

fn show(app: &App, args: &TaskArgs) -> CliResult {
    let store: Arc<dyn Store> = Arc::new(app.reader()?);
    let row = app.task_row(&*store, &args.id)?;
    let review = block_on(asked(&store, row.id))?;
    if app.json() {
        print_json(&review)?;
    } else {
        say!("{}", details(&review))?;
    }
    Ok(Exit::Done)
}

/// What a task, or a sub-agent that it waits for, wants a person to decide.
pub(crate) async fn asked(store: &Arc<dyn Store>, id: TaskId) -> Result<Review, CliError> {
    let mut asks = id;
    loop {
        if let Some(review) = open(store, asks).await? {
            return Ok(review);
        }
        let waiting = TaskFilter {
            statuses: vec![TaskStatus::AwaitingHuman],
            parent: Some(asks),
            ..TaskFilter::default()
        };
        match store.task_rows(&waiting)?.as_slice() {
            [] => {
                let message = format!("task {id} waits for no decision");
                let hint = "`polity review list` shows what waits";
                return Err(CliError::conflict(message).hint(hint));
            }
            [one] => asks = one.id,
            several => {
                let mut each = String::new();
                for row in several.iter().rev() {
                    let question = match Box::pin(asked(store, row.id)).await {
                        Ok(review) => review.question,
                        // One that cannot be read must not hide the others.
                        Err(error) => error.message().to_owned(),
                    };
                    each.extend(["\n  ", &row.id.to_string(), "  ", &harmless(&question)]);
                }
                let message = format!("several sub-agents of task {asks} wait for a decision");
                return Err(CliError::usage(message).hint(format!("name one of them:{each}")));
            }
        }
    }
}

/// What a task waits for a person to decide, if it does.
pub(crate) async fn open(store: &Arc<dyn Store>, id: TaskId) -> Result<Option<Review>, CliError> {
    let state = load(store, id).await?.state;
    let Some(review) = state.review() else { return Ok(None) };
    let call = review.subject.call_id().and_then(|call| state.calls().get(call));
    let of_call = call.and_then(|call| state.walk()?.node_name(call.id()));
    let position = review.subject.node().or(of_call);
    let position = position.unwrap_or(&state.task().order().assigned_agent);
    Ok(Some(Review {
        task_id: id,
        checkpoint_id: review.checkpoint_id,
        position: position.to_string(),
        question: review.question.clone(),
        created_at: review.created_at,
        deadline: review.deadline,
        subject: review.subject.clone(),
        default_action: review.default_action,
        tool: call.map(polity_engine::state::Call::name),
        arguments: call.map(|call| call.arguments().clone()),
    }))
}

fn kind(subject: &ReviewSubject) -> &'static str {
    match subject {
        ReviewSubject::Approval { .. } => "approval",
        ReviewSubject::Doubt { .. } => "in doubt",
        ReviewSubject::Node { .. } => "question",
        ReviewSubject::Checkpoint { .. } => "checkpoint",
    }
}

/// A review with everything that a person needs to decide, and how to say so.
pub(crate) fn details(review: &Review) -> String {
    let id = &review.task_id.to_string()[..8];
    let field = |name: &str, value: &str| format!("{} {value}", style::dim(&format!("{name:10}")));
    let mut lines = vec![
        field("task", &style::label(&review.task_id.to_string())),
        field(if review.tool.is_some() { "agent" } else { "node" }, &review.position),
    ];
    if let Some(tool) = &review.tool {
        lines.push(field("tool", &harmless(tool)));
    }
    if let Some(arguments) = &review.arguments {
        let arguments = serde_json::to_string_pretty(&Value::Object(arguments.clone()))
            .unwrap_or_default()
            .replace('\n', "\n           ");
        lines.push(field("arguments", &harmless(&arguments)));
    }
    if review.tool.is_none() {
        lines.push(field("question", &harmless(&review.question).replace('\n', "\n           ")));
    }
    lines.push(field("since", &view::time(review.created_at)));
    if let Some(deadline) = review.deadline {
        let then = match review.default_action {
            Some(action) => {
                format!("{}, then it counts as {}", view::time(deadline), action.label())
            }
            None => format!("{}, then the task fails", view::time(deadline)),
        };
        lines.push(field("until", &then));
    }
    let choices: &[(&str, &str)] = match &review.subject {
        ReviewSubject::Approval { .. } => &[
            ("approve", "the tool is called"),
            ("modify --set NAME=VALUE", "it is called with other arguments"),
            ("reject --message TEXT", "it is not called, and the model is told why"),
        ],
        ReviewSubject::Doubt { .. } => {
            lines.push(field(
                "in doubt",
                "the tool was being called when the process ended; no one knows whether it had \
                 its effect",
            ));
            &[
                ("approve --retry", "it is called again"),
                ("approve --skip-with RESULT", "it is not called again; this is its result"),
                ("reject --message TEXT", "the task fails"),
            ]
        }
        ReviewSubject::Node { .. } => &[
            ("approve --message TEXT", "the workflow goes on; routing_key is approve"),
            ("modify --set metadata.NAME=VALUE", "it goes on with another State; key modify"),
            ("reject --message TEXT", "an edge for reject is taken, or the task fails"),
        ],
        ReviewSubject::Checkpoint { .. } => &[
            ("approve", "the node runs"),
            ("modify --set metadata.NAME=VALUE", "it runs on another State"),
            ("reject --message TEXT", "the task fails"),
        ],
    };
    lines.push(String::new());
    let commands = choices.iter().map(|(choice, then)| {
        let (action, rest) = choice.split_once(' ').unwrap_or((choice, ""));
        (format!("polity review {action} {id} {rest}").trim_end().to_owned(), then)
    });
    let commands: Vec<_> = commands.collect();
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, then) in commands {
        lines.push(format!("  {command:width$}  {}", style::dim(then)));
    }
    lines.join("\n")
}
