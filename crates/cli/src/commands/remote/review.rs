//! `polity review` on a server.

use polity_model::ids::TaskId;
use polity_model::review::{Review, ReviewVerdict};
use polity_model::task::Task;
use serde_json::{Value, json};

use super::follow::{FirstStep, ended, follow};
use super::lookup::find_task;
use super::{refuse_recording, refuse_trust};
use crate::args::{DecideArgs, ReviewCommand, TaskArgs};
use crate::client::{ApiClient, ServerLink};
use crate::commands::review::answer::AnswerKind;
use crate::commands::review::{details, print};
use crate::commands::run::present;
use crate::commands::trust::user_name;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};

pub(super) async fn review(link: &ServerLink, command: ReviewCommand) -> CliResult {
    match command {
        ReviewCommand::List => {
            let reviews: Vec<Review> = link.client.list(&["reviews"], &[], None).await?;
            print(&link.options, &reviews)
        }
        ReviewCommand::Show(args) => show(link, &args).await,
        ReviewCommand::Approve(args) => {
            let (args, kind) = AnswerKind::approve(args)?;
            answer(link, &args, &kind).await
        }
        ReviewCommand::Reject(args) => answer(link, &args, &AnswerKind::Reject).await,
        ReviewCommand::Modify(args) => answer(link, &args, &AnswerKind::Modify).await,
    }
}

async fn load(client: &ApiClient, id: TaskId) -> Result<Review, CliError> {
    client.get(&["reviews", &id.to_string()], &[]).await
}

async fn show(link: &ServerLink, args: &TaskArgs) -> CliResult {
    let id = find_task(&link.client, &args.id).await?;
    let review = load(&link.client, id).await?;
    link.options.print(&review, || details(&review))
}

/// Records an answer, and shows the steps that follow unless `--detach` is given.
async fn answer(link: &ServerLink, args: &DecideArgs, kind: &AnswerKind) -> CliResult {
    refuse_recording(&args.recording)?;
    refuse_trust(args.trust)?;
    let client = &link.client;
    let id = find_task(client, &args.id).await?;
    let review = load(client, id).await?;
    let (verdict, updates) = kind.decide(review.arguments.as_ref(), &args.set)?;
    let mut body = json!({
        "checkpoint_id": args.checkpoint.unwrap_or(review.checkpoint_id),
        "message": args.message,
        "state_updates": updates.as_map(),
        "by": user_name(),
    });
    let action = match verdict {
        ReviewVerdict::Approve => "approve",
        ReviewVerdict::Reject => "reject",
        ReviewVerdict::Retry => "retry",
        ReviewVerdict::Modify { arguments } => {
            body["arguments"] = Value::Object(arguments);
            "modify"
        }
        ReviewVerdict::SkipWith { result } => {
            body["result"] = Value::from(result);
            "skip_with"
        }
    };
    body["action"] = Value::from(action);
    let asking = review.task_id;
    let _: Task = client.post(&["reviews", &asking.to_string(), "answer"], &body).await?;
    let top = review.top_task_id;
    // The answer itself has ended the task, or has opened the next review.
    if asking == top
        && !args.detach
        && let Some(task) = ended(client, top).await?
    {
        return present(&link.options, &task);
    }
    if args.detach {
        let task: Task = client.get(&["tasks", &top.to_string()], &[]).await?;
        return if task.status.is_final() {
            present(&link.options, &task)
        } else {
            report_recorded(link, &task)
        };
    }
    let first = FirstStep::Answer(asking, review.checkpoint_id);
    let task = follow(link, top, first).await?;
    present(&link.options, &task)
}

fn report_recorded(link: &ServerLink, task: &Task) -> CliResult {
    let id = task.id;
    if link.options.json {
        print_json(task)?;
    } else {
        say!("recorded; another process continues the task: `polity task watch {id}`")?;
    }
    Ok(ExitStatus::Done)
}
