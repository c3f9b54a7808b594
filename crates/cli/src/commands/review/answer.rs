//! `polity review approve`, `reject` and `modify`: the answer is recorded, and the task goes on.

use std::sync::Arc;

use polity_engine::commands::AnswerReview;
use polity_engine::decide::CommandRejection;
use polity_engine::driver::RunOverrides;
use polity_engine::runtime::{EngineError, Owners, top_of};
use polity_model::ids::TaskId;
use polity_model::review::ReviewVerdict;
use polity_model::state::StateUpdates;
use polity_store::Store;
use serde_json::{Map, Value};

use crate::app::{App, Drivers, Workshop, block_on};
use crate::args::{ApproveArgs, DecideArgs};
use crate::commands::run::{follow, present};
use crate::commands::set;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::tape::{Given, Part, Tape, TapeFile, carrier_of};
use crate::view::{print_json, say};

pub(super) fn approve(app: &App, args: ApproveArgs) -> CliResult {
    let verdict = match (args.retry, args.skip_with) {
        (true, None) => ReviewVerdict::Retry,
        (false, Some(result)) => ReviewVerdict::SkipWith { result },
        (false, None) => ReviewVerdict::Approve,
        (true, Some(_)) => {
            return Err(CliError::usage("--retry and --skip-with exclude each other"));
        }
    };
    answer(app, args.decide, |_, set| Ok((verdict, set::updates(set)?)))
}

pub(super) fn reject(app: &App, args: DecideArgs) -> CliResult {
    answer(app, args, |_, set| Ok((ReviewVerdict::Reject, set::updates(set)?)))
}

pub(super) fn modify(app: &App, args: DecideArgs) -> CliResult {
    answer(app, args, |arguments, changes| {
        let Some(mut arguments) = arguments.cloned() else {
            return Ok((ReviewVerdict::Modify { arguments: Map::new() }, set::updates(changes)?));
        };
        if changes.is_empty() {
            return Err(CliError::usage("nothing is changed").hint(
                "say which argument to change: --set NAME=VALUE; or use `polity review approve`",
            ));
        }
        for change in changes {
            set(&mut arguments, change)?;
        }
        Ok((ReviewVerdict::Modify { arguments }, StateUpdates::default()))
    })
}

/// What a person decides: the verdict, and what changes in the State.
type Decided = Result<(ReviewVerdict, StateUpdates), CliError>;

/// Records the answer, and goes on with the task unless only that was asked for.
fn answer(
    app: &App,
    args: DecideArgs,
    decide: impl FnOnce(Option<&Map<String, Value>>, &[String]) -> Decided,
) -> CliResult {
    let reader: Arc<dyn Store> = Arc::new(app.reader()?);
    let row = app.task_row(&*reader, &args.id)?;
    let home = app.definitions()?;
    let DecideArgs { message, detach, checkpoint, tape, set, .. } = args;
    block_on(async {
        let review = super::asked(&reader, row.id).await?;
        let id = review.task_id;
        // A sub-agent goes on with the task that it is a part of.
        let row = app.task_row(&*reader, &id.to_string())?;
        let whole = top_of(&*reader, row.clone())?.id;
        let row = carrier_of(&tape, &*reader, row)?;
        let (carrier, agent) = (row.id, row.assigned_agent.as_str());
        let file = TapeFile::find(&tape, agent, Part::Rest)?;
        let input = app.task(&*reader, &row)?.description;
        let given = Given { agent, input: &input, overrides: &RunOverrides::default() };
        let (verdict, state_updates) = decide(review.arguments.as_ref(), &set)?;
        let checkpoint_id = checkpoint.unwrap_or(review.checkpoint_id);
        // A person can always say no, whatever has become of the servers.
        let is_rejected = verdict == ReviewVerdict::Reject;
        let (drivers, tape) = match file {
            None if is_rejected => (Drivers::available(app, &home)?, Tape::None),
            file => Tape::open(file, app, &home, given)?,
        };
        let workshop = Workshop::open_with(app, &home, drivers)?;
        if !detach && !is_rejected {
            // An answer whose consequences could not be carried out is not recorded.
            workshop.runtime.ready(carrier).await?;
        }
        let by = person();
        let answer = AnswerReview { checkpoint_id, verdict, message, by, state_updates };
        let answered = workshop.runtime.answer(id, answer).await;
        let outcome = match answered {
            Ok(()) if detach => recorded(app, &workshop, whole, carrier),
            Ok(()) => go_on(app, &workshop, &tape, whole, carrier).await,
            Err(error) => Err(error.into()),
        };
        workshop.close().await;
        outcome
    })
}

/// Tells that the answer is there, and who goes on with it.
fn recorded(app: &App, workshop: &Workshop, whole: TaskId, carrier: TaskId) -> CliResult {
    let task = workshop.task(app, whole)?;
    if task.status.is_final() {
        return present(app, &task);
    }
    if app.json() {
        print_json(&task)?;
    } else if has_owner(app, workshop, carrier)? {
        say!("recorded; another process goes on with the task: `polity task watch {carrier}`")?;
    } else {
        say!("recorded; the task goes on with `polity task resume {carrier}`")?;
    }
    Ok(Exit::Done)
}

/// Takes over what the answer is needed for, and shows what became of the whole.
async fn go_on(
    app: &App,
    workshop: &Workshop,
    tape: &Tape,
    whole: TaskId,
    carrier: TaskId,
) -> CliResult {
    let task = workshop.task(app, whole)?;
    if task.status.is_final() {
        return present(app, &task);
    }
    let live = workshop.runtime.subscribe();
    match workshop.runtime.adopt(carrier).await {
        Ok(handle) => {
            let mut task = follow(app, workshop, handle, live).await?;
            if carrier != whole {
                task = workshop.task(app, whole)?;
            }
            let exit = present(app, &task)?;
            tape.finish(app, &task)?;
            Ok(exit)
        }
        // The next question follows on the answer at once, or the answer has ended the part.
        Err(EngineError::Rejected(
            CommandRejection::AwaitingHuman { .. } | CommandRejection::Finished { .. },
        )) => {
            let task = workshop.task(app, whole)?;
            let exit = present(app, &task)?;
            tape.finish(app, &task)?;
            Ok(exit)
        }
        // Someone who adopts whatever is left was faster, and goes on with it. Or what a rejection
        // leads to may need what is not there.
        Err(
            EngineError::Rejected(CommandRejection::OwnerAlive { .. }) | EngineError::NotReady(_),
        ) if app.json() => {
            print_json(&workshop.task(app, whole)?)?;
            Ok(Exit::Done)
        }
        Err(EngineError::Rejected(CommandRejection::OwnerAlive { .. })) => {
            say!("recorded; another process goes on with the task: `polity task watch {carrier}`")?;
            Ok(Exit::Done)
        }
        Err(EngineError::NotReady(missing)) => {
            say!("recorded; the task cannot go on yet: {missing}")?;
            say!("{}; then `polity task resume {carrier}`", missing.hint)?;
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
    let (path, value) = set::change(change, "path=notes.txt")?;
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
