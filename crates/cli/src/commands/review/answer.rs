//! `polity review approve`, `reject` and `modify`: the answer is recorded, and the task goes on.

use std::sync::Arc;

use polity_engine::commands::AnswerReview;
use polity_engine::decide::Rejection;
use polity_engine::runtime::{EngineError, Owners, top_of};
use polity_model::ids::TaskId;
use polity_model::review::Verdict;
use polity_store::Store;
use serde_json::{Map, Value};

use crate::app::{App, Workshop, block_on};
use crate::args::{ApproveArgs, DecideArgs, ModifyArgs};
use crate::commands::run::{follow, present};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::tape::{Part, Tape, TapeFile};
use crate::view::{print_json, say};

pub(super) fn approve(app: &App, args: ApproveArgs) -> CliResult {
    let verdict = match (args.retry, args.skip_with) {
        (true, None) => Verdict::Retry,
        (false, Some(result)) => Verdict::SkipWith { result },
        (false, None) => Verdict::Approve,
        (true, Some(_)) => {
            return Err(CliError::usage("--retry and --skip-with exclude each other"));
        }
    };
    answer(app, args.decide, |_| Ok(verdict))
}

pub(super) fn reject(app: &App, args: DecideArgs) -> CliResult {
    answer(app, args, |_| Ok(Verdict::Reject))
}

pub(super) fn modify(app: &App, args: ModifyArgs) -> CliResult {
    let changes = args.set;
    answer(app, args.decide, move |arguments| {
        let mut arguments = arguments.clone();
        for change in &changes {
            set(&mut arguments, change)?;
        }
        Ok(Verdict::Modify { arguments })
    })
}

/// Records the answer, and goes on with the task unless only that was asked for.
fn answer(
    app: &App,
    args: DecideArgs,
    verdict: impl FnOnce(&Map<String, Value>) -> Result<Verdict, CliError>,
) -> CliResult {
    let reader: Arc<dyn Store> = Arc::new(app.reader()?);
    let row = app.task_row(&*reader, &args.id)?;
    let home = app.definitions()?;
    let DecideArgs { message, detach, checkpoint, tape, .. } = args;
    block_on(async {
        let review = super::asked(&reader, row.id).await?;
        let id = review.task_id;
        // A sub-agent goes on with the task that it is a part of.
        let row = app.task_row(&*reader, &id.to_string())?;
        let row = top_of(&*reader, row)?;
        let (top, agent) = (row.id, row.assigned_agent.as_str());
        let file = TapeFile::find(&tape, agent, Part::Rest)?;
        let input = app.task(&*reader, &row)?.description;
        let verdict = verdict(&review.arguments)?;
        let checkpoint_id = checkpoint.unwrap_or(review.checkpoint_id);
        let (drivers, tape) = Tape::open(file, app, &home, agent, &input)?;
        let workshop = Workshop::open_with(app, &home, drivers)?;
        if !detach {
            // An answer whose consequences could not be carried out is not recorded.
            workshop.runtime.ready(top).await?;
        }
        let answer = AnswerReview { checkpoint_id, verdict, message, by: person() };
        let answered = workshop.runtime.answer(id, answer).await;
        let outcome = match answered {
            Ok(()) => go_on(app, &workshop, &tape, top, detach).await,
            Err(error) => Err(error.into()),
        };
        workshop.close().await;
        outcome
    })
}

async fn go_on(app: &App, workshop: &Workshop, tape: &Tape, id: TaskId, detach: bool) -> CliResult {
    let task = workshop.task(app, id)?;
    if task.status.is_final() {
        return present(app, &task);
    }
    if detach {
        if app.json() {
            print_json(&task)?;
        } else if has_owner(app, workshop, id)? {
            say!("recorded; another process goes on with the task: `polity task watch {id}`")?;
        } else {
            say!("recorded; the task goes on with `polity task resume {id}`")?;
        }
        return Ok(Exit::Done);
    }
    let live = workshop.runtime.subscribe();
    match workshop.runtime.adopt(id).await {
        Ok(handle) => {
            let task = follow(app, workshop, handle, live).await?;
            let exit = present(app, &task)?;
            tape.finish(app, &task)?;
            Ok(exit)
        }
        // Someone who adopts whatever is left was faster, and goes on with it.
        Err(EngineError::Rejected(Rejection::OwnerAlive { .. })) if app.json() => {
            print_json(&workshop.task(app, id)?)?;
            Ok(Exit::Done)
        }
        Err(EngineError::Rejected(Rejection::OwnerAlive { .. })) => {
            say!("recorded; another process goes on with the task: `polity task watch {id}`")?;
            Ok(Exit::Done)
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a process that is alive works on the task, and will notice the answer.
fn has_owner(app: &App, workshop: &Workshop, id: TaskId) -> Result<bool, CliError> {
    let row = workshop.store.task_row(id)?;
    let owner = row.and_then(|row| row.owner);
    Ok(owner.is_some_and(|owner| Owners::is_alive(&app.instances(), owner)))
}

/// Who decides: whoever runs this.
fn person() -> String {
    ["POLITY_USER", "USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var_os(name)?.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
}

/// Puts a value where the path says: `path=notes.txt`, `options.depth=3`. A path may begin with
/// `arguments.`, where no argument is called that.
fn set(arguments: &mut Map<String, Value>, change: &str) -> Result<(), CliError> {
    let (path, value) =
        change.split_once('=').filter(|(path, _)| !path.is_empty()).ok_or_else(|| {
            CliError::usage(format!("\"{change}\" changes nothing"))
                .hint("write it as NAME=VALUE: --set path=notes.txt")
        })?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
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
    fn changes_land_where_their_paths_say() {
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
