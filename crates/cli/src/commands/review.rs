//! `polity review`: what waits for a person, and what the person decides.

mod answer;
mod details;
mod place;

use std::sync::Arc;

use polity_engine::clock::{Clock, SystemClock};
use polity_engine::commands::outlook;
use polity_engine::runtime::{EngineError, load};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_model::review::{Review, ReviewSubject};
use polity_store::{Store, TaskFilter};

use crate::app::{App, block_on};
use crate::args::{ReviewCommand, TaskArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{columns, harmless, print_json, say, task as view};

pub(crate) use self::details::details;
use self::place::Place;

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
        let has_deadlines = reviews.iter().any(|review| review.deadline.is_some());
        let mut heading = vec!["TASK", "SINCE", "PLACE", "KIND", "QUESTION"];
        if has_deadlines {
            heading.insert(2, "UNTIL");
        }
        let rows = reviews.iter().map(|review| {
            let mut row = vec![
                review.task_id.to_string()[..8].to_owned(),
                view::time(review.created_at),
                review.place.clone(),
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

/// Until when there is time; when that is over, what follows.
fn until(review: &Review) -> String {
    match (review.deadline, review.default_action) {
        (Some(_), Some(action)) if review.expired => format!("passed: {}", action.label()),
        (Some(_), None) if review.expired => "passed: fails".to_owned(),
        (Some(deadline), _) => view::time(deadline),
        (None, _) => String::new(),
    }
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
                        Ok(review) => format!("{}: {}", review.place, review.question),
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
    let node = review.subject.node().or(of_call);
    let row = store.task_row(id)?.ok_or(EngineError::NotFound(id))?;
    let Place { top, way } = Place::of(store, row, node).await?;
    let position = node.unwrap_or(&state.task().order().assigned_agent);
    let now = SystemClock.now();
    let expired = review.deadline.is_some_and(|deadline| deadline <= now);
    let answers = if expired { Vec::new() } else { outlook(&state, now) };
    Ok(Some(Review {
        task_id: id,
        checkpoint_id: review.checkpoint_id,
        position: position.to_string(),
        top_task_id: top,
        place: way,
        question: review.question.clone(),
        created_at: review.created_at,
        deadline: review.deadline,
        expired,
        answers,
        subject: review.subject.clone(),
        default_action: review.default_action,
        tool: call.map(polity_engine::state::TurnCall::name),
        arguments: call.map(|call| call.arguments().clone()),
    }))
}

fn kind(subject: &ReviewSubject) -> &'static str {
    match subject {
        ReviewSubject::Approval { .. } => "approval",
        ReviewSubject::Doubt { .. } | ReviewSubject::RunDoubt { .. } => "in doubt",
        ReviewSubject::RemoteQuestion { .. } | ReviewSubject::Node { .. } => "question",
        ReviewSubject::Checkpoint { .. } => "checkpoint",
    }
}
