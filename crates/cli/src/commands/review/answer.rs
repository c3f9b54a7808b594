//! `polity review approve`, `reject` and `modify`: records an answer and resumes the task.

use polity_engine::commands::AnswerReview;
use polity_engine::decide::CommandRejection;
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::EngineError;
use polity_host::recording::{
    CassetteFile, Recording, RecordingScope, RecordingSubject, resumable_task,
};
use polity_host::{DriverSet, Host};
use polity_model::event::JournalPosition;
use polity_model::ids::TaskId;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use serde_json::{Map, Value};

use crate::app::{AppContext, close};
use crate::args::{ApproveArgs, DecideArgs};
use crate::commands::run::{finish, follow, present};
use crate::commands::set_option;
use crate::commands::trust::{explain, trust_if_asked, user_name};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};

/// The kind of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerKind {
    /// `review approve`.
    Approve(ReviewVerdict),
    /// `review reject`.
    Reject,
    /// `review modify`.
    Modify,
}

impl AnswerKind {
    /// The arguments and the kind of `review approve`.
    pub(crate) fn approve(args: ApproveArgs) -> Result<(DecideArgs, Self), CliError> {
        let verdict = match (args.retry, args.skip_with) {
            (true, None) => ReviewVerdict::Retry,
            (false, Some(result)) => ReviewVerdict::SkipWith { result },
            (false, None) => ReviewVerdict::Approve,
            (true, Some(_)) => {
                return Err(CliError::usage("--retry and --skip-with exclude each other"));
            }
        };
        Ok((args.decide, Self::Approve(verdict)))
    }

    /// The verdict on a call with these arguments, or on a node, and changes of the State.
    pub(crate) fn decide(
        &self,
        arguments: Option<&Map<String, Value>>,
        changes: &[String],
    ) -> Result<(ReviewVerdict, StateUpdates), CliError> {
        let mut arguments = match (self, arguments) {
            (Self::Approve(verdict), _) => {
                return Ok((verdict.clone(), set_option::updates(changes)?));
            }
            (Self::Reject, _) => {
                return Ok((ReviewVerdict::Reject, set_option::updates(changes)?));
            }
            (Self::Modify, None) => {
                let verdict = ReviewVerdict::Modify { arguments: Map::new() };
                return Ok((verdict, set_option::updates(changes)?));
            }
            (Self::Modify, Some(arguments)) => arguments.clone(),
        };
        if changes.is_empty() {
            return Err(CliError::usage("nothing is changed").hint(
                "name the argument to change with --set NAME=VALUE, or use `polity review approve`",
            ));
        }
        for change in changes {
            set(&mut arguments, change)?;
        }
        Ok((ReviewVerdict::Modify { arguments }, StateUpdates::default()))
    }
}

/// Records the answer, and continues the task unless `--detach` is given.
pub(super) async fn answer(app: &AppContext, args: DecideArgs, kind: &AnswerKind) -> CliResult {
    let queries = app.queries()?;
    let row = queries.find_task(&args.id).await?;
    let home = app.definitions()?;
    let DecideArgs { message, detach, checkpoint, recording, set, trust, .. } = args;
    let review = queries.find_review(row.id).await?;
    let id = review.task_id;
    // A part is resumed with its root task.
    let row = queries.task_row(id).await?;
    let top = queries.top_task(row.clone()).await?.id;
    let request = recording.request();
    let row = resumable_task(request.as_ref(), &queries, row).await?;
    let (resumed, agent) = (row.id, row.assigned_agent.as_str());
    let open = |request| CassetteFile::open(request, agent, RecordingScope::Remainder);
    let file = request.map(open).transpose()?;
    let input = queries.task_of(&row).await?.description;
    let run = RecordingSubject { agent, input: &input, overrides: &RunOverrides::default() };
    let (verdict, state_updates) = kind.decide(review.arguments.as_ref(), &set)?;
    let checkpoint_id = checkpoint.unwrap_or(review.checkpoint_id);
    // A rejection must work even if the MCP server definitions are invalid.
    let is_rejected = verdict == ReviewVerdict::Reject;
    let (drivers, recording) = match file {
        None if is_rejected => (DriverSet::available(&app.context, &home)?, Recording::Off),
        file => Recording::open(file, &app.context, &home, run)?,
    };
    let host = Host::open_with(&app.context, &home, drivers).await?;
    trust_if_asked(&host, id, trust).await?;
    if !detach && !is_rejected {
        // An answer is recorded only if the task can continue here.
        if let Err(error) = host.runtime().ready(resumed).await {
            return Err(explain(&queries, error).await);
        }
    }
    let by = user_name();
    let answer = AnswerReview { checkpoint_id, verdict, message, by, state_updates };
    let seen = host.queries().store().last_position().await?;
    let outcome = match host.runtime().answer(id, answer.clone()).await {
        Ok(()) => {
            recording.record_answer(&review, &answer);
            if detach {
                report_recorded(app, &host, top, resumed).await
            } else {
                resume(app, &host, &recording, top, resumed, seen).await
            }
        }
        Err(error) => Err(explain(&queries, error).await),
    };
    close(host).await;
    outcome
}

/// Reports that the answer is recorded, and which process continues the task.
async fn report_recorded(app: &AppContext, host: &Host, top: TaskId, resumed: TaskId) -> CliResult {
    let task = host.queries().load_task(top).await?;
    if task.status.is_final() {
        return present(&app.options, &task);
    }
    if app.json() {
        print_json(&task)?;
    } else if host.queries().has_live_owner(&host.queries().task_row(resumed).await?).await {
        say!("recorded; another process continues the task: `polity task watch {resumed}`")?;
    } else {
        say!("recorded; resume the task with `polity task resume {resumed}`")?;
    }
    Ok(ExitStatus::Done)
}

/// Adopts the task that the answer unblocks, and presents the result of the task at the top.
async fn resume(
    app: &AppContext,
    host: &Host,
    recording: &Recording,
    top: TaskId,
    resumed: TaskId,
    seen: JournalPosition,
) -> CliResult {
    let queries = host.queries();
    let task = queries.load_task(top).await?;
    if task.status.is_final() {
        let exit = present(&app.options, &task)?;
        finish(app, recording, &task)?;
        return Ok(exit);
    }
    let live = host.runtime().subscribe();
    match host.runtime().adopt(resumed).await {
        Ok(handle) => {
            let mut task = follow(app, host, handle, live, seen).await?;
            if resumed != top {
                task = queries.load_task(top).await?;
            }
            let exit = present(&app.options, &task)?;
            finish(app, recording, &task)?;
            Ok(exit)
        }
        // The answer has opened the next review at once, or has ended the part.
        Err(EngineError::Rejected(
            CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. },
        )) => {
            let task = queries.load_task(top).await?;
            let exit = present(&app.options, &task)?;
            finish(app, recording, &task)?;
            Ok(exit)
        }
        // Another process adopted the task first, or the task needs something that is missing here.
        Err(
            EngineError::Rejected(CommandRejection::OwnerAlive { .. }) | EngineError::NotReady(_),
        ) if app.json() => {
            print_json(&queries.load_task(top).await?)?;
            Ok(ExitStatus::Done)
        }
        Err(EngineError::Rejected(CommandRejection::OwnerAlive { .. })) => {
            say!("recorded; another process continues the task: `polity task watch {resumed}`")?;
            Ok(ExitStatus::Done)
        }
        Err(EngineError::NotReady(missing)) => {
            say!("recorded; the task cannot continue yet: {missing}")?;
            say!("{}; then `polity task resume {resumed}`", missing.hint)?;
            Ok(ExitStatus::Done)
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts a value where the path says: `path=notes.txt`, `options.depth=3`. A path may begin with
/// `arguments.`, where no argument is called that.
fn set(arguments: &mut Map<String, Value>, change: &str) -> Result<(), CliError> {
    let (path, value) = set_option::change(change, "path=notes.txt")?;
    let path = match path.strip_prefix("arguments.") {
        Some(rest) if !arguments.contains_key("arguments") => rest,
        Some(_) | None => path,
    };
    let mut place = arguments;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            place.insert(name.to_owned(), value);
            return Ok(());
        }
        let inner = place.entry(name).or_insert_with(|| Value::Object(Map::new()));
        place = inner.as_object_mut().ok_or_else(|| {
            CliError::usage(format!("\"{name}\" in \"{path}\" is not an object"))
                .hint("see the arguments with `polity review show`")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn set_changes_the_named_argument() {
        let before = json!({"path": "a", "options": {"depth": 1}});
        for (change, after) in [
            ("path=b", json!({"path": "b", "options": {"depth": 1}})),
            ("arguments.path=b", json!({"path": "b", "options": {"depth": 1}})),
            ("options.depth=3", json!({"path": "a", "options": {"depth": 3}})),
            ("new.deep=[1]", json!({"path": "a", "options": {"depth": 1}, "new": {"deep": [1]}})),
            ("path=x=y", json!({"path": "x=y", "options": {"depth": 1}})),
        ] {
            let mut arguments = before.as_object().unwrap().clone();
            set(&mut arguments, change).unwrap();
            assert_eq!(Value::Object(arguments), after, "{change}");
        }
        for wrong in ["path", "=b", "path.deep=1"] {
            let mut arguments = before.as_object().unwrap().clone();
            assert!(set(&mut arguments, wrong).is_err(), "{wrong}");
            assert_eq!(Value::Object(arguments), before);
        }
    }
}
