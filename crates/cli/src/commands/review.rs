//! `polity review`: lists, shows and answers reviews.

pub(super) mod answer;
mod details;

use polity_model::review::{Review, ReviewSubject};

use self::answer::AnswerKind;
use crate::app::AppContext;
use crate::args::{GlobalOptions, ReviewCommand, TaskArgs};
use crate::error::{CliError, CliResult, print_error};
use crate::exit::ExitStatus;
use crate::view::{columns, task as view};

pub(crate) use self::details::details;

pub(crate) async fn review(app: &AppContext, command: ReviewCommand) -> CliResult {
    match command {
        ReviewCommand::List => list(app).await,
        ReviewCommand::Show(args) => show(app, &args).await,
        ReviewCommand::Approve(args) => {
            let (args, kind) = AnswerKind::approve(args)?;
            answer::answer(app, args, &kind).await
        }
        ReviewCommand::Reject(args) => answer::answer(app, args, &AnswerKind::Reject).await,
        ReviewCommand::Modify(args) => answer::answer(app, args, &AnswerKind::Modify).await,
    }
}

async fn list(app: &AppContext) -> CliResult {
    let queries = app.queries()?;
    let mut reviews = Vec::new();
    let mut exit = ExitStatus::Done;
    for row in queries.tasks_awaiting_review().await? {
        match queries.open_review(row.id).await {
            Ok(review) => reviews.extend(review),
            // An unreadable review must not hide the others.
            Err(error) => {
                print_error(&CliError::from(error), app.json());
                exit = ExitStatus::Failed;
            }
        }
    }
    print(&app.options, &reviews)?;
    Ok(exit)
}

/// Prints open reviews.
pub(crate) fn print(options: &GlobalOptions, reviews: &[Review]) -> CliResult {
    options.print_list(reviews, "nothing waits for a person", || {
        let has_deadlines = reviews.iter().any(|review| review.deadline.is_some());
        let mut heading = vec!["TASK", "SINCE", "PATH", "KIND", "QUESTION"];
        if has_deadlines {
            heading.insert(2, "UNTIL");
        }
        let rows = reviews.iter().map(|review| {
            let mut row = vec![
                review.task_id.to_string()[..8].to_owned(),
                view::time(review.created_at),
                review.place.clone(),
                kind(&review.subject).to_owned(),
                review.question.clone(),
            ];
            if has_deadlines {
                row.insert(2, until(review));
            }
            row
        });
        columns(&heading, rows)
    })
}

async fn show(app: &AppContext, args: &TaskArgs) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    let review = queries.find_review(row.id).await?;
    app.print(&review, || details(&review))
}

/// The deadline, or its effect once it has passed.
fn until(review: &Review) -> String {
    match (review.deadline, review.default_action) {
        (Some(_), Some(action)) if review.expired => format!("passed: {}", action.label()),
        (Some(_), None) if review.expired => "passed: fails".to_owned(),
        (Some(deadline), _) => view::time(deadline),
        (None, _) => String::new(),
    }
}

fn kind(subject: &ReviewSubject) -> &'static str {
    match subject {
        ReviewSubject::Approval { .. } => "approval",
        ReviewSubject::Doubt { .. } | ReviewSubject::RunDoubt { .. } => "in doubt",
        ReviewSubject::RemoteQuestion { .. } | ReviewSubject::Node { .. } => "question",
        ReviewSubject::Checkpoint { .. } => "checkpoint",
    }
}
