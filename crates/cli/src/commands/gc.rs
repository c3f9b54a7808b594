//! `polity gc`: removes tasks whose time is over, and says why the others stay.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use jiff::Timestamp;
use polity_definition::is_retention_policy;
use polity_engine::clock::{Clock, SystemClock};
use polity_engine::driver::Programs;
use polity_engine::retention::{
    RetentionAction, RetentionDecision, RetentionPlan, RetentionReason, plan_retention,
};
use polity_engine::runtime::EngineError;
use polity_model::ids::{ExecutionId, TaskId};
use polity_store::{Removal, Store, TaskFilter, TaskRow};
use serde_json::{Value, json};

use crate::app::App;
use crate::args::GcArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{count, lines, print_json, say, table, task as view};

/// How many units are removed in one transaction: it bounds how long others wait for the store.
const UNITS_AT_ONCE: usize = 64;

/// How many tasks that stay are listed one by one; more are summed up by what decided.
const KEPT_LISTED_MAX: usize = 50;

pub(crate) fn gc(app: &App, args: &GcArgs) -> CliResult {
    let home = app.definitions()?;
    let of_policy: Vec<_> = home
        .problems
        .iter()
        .filter(|problem| is_retention_policy(&problem.file))
        .cloned()
        .collect();
    if !of_policy.is_empty() {
        // With a slip in it, tasks would go that someone meant to keep.
        return Err(CliError::invalid("the retention policy is not valid", of_policy));
    }
    // Where nothing has happened yet, nothing is made.
    let writes = !args.dry_run && app.folder.database().exists();
    let store = if writes { app.writer(&home)? } else { app.reader()? };
    let rows = store.task_rows(&TaskFilter::default())?;
    let mut plan = plan_retention(&rows, &home.retention_policy, SystemClock.now());
    if writes {
        carry_out(app, &*app.programs(&home)?, &store, &mut plan)?;
    }
    let rows: BTreeMap<TaskId, &TaskRow> = rows.iter().map(|row| (row.id, row)).collect();
    let told: Vec<(&RetentionDecision, &TaskRow)> = plan
        .decisions
        .iter()
        .filter_map(|decision| Some((decision, *rows.get(&decision.task)?)))
        .collect();
    if app.json() {
        print_json(&as_json(args.dry_run, &told))?;
    } else {
        say!("{}", as_text(args.dry_run, &told))?;
    }
    Ok(Exit::Done)
}

/// Removes what is to go. What was refused, because it changed meanwhile, is said to stay.
fn carry_out(
    app: &App,
    programs: &dyn Programs,
    store: &dyn Store,
    plan: &mut RetentionPlan,
) -> Result<(), CliError> {
    let mut refused: BTreeMap<TaskId, RetentionReason> = BTreeMap::new();
    for units in plan.units.chunks(UNITS_AT_ONCE) {
        let answers = store.remove(units.to_vec())?;
        for (unit, answer) in units.iter().zip(answers) {
            match answer {
                Removal::Removed { executions, .. } => {
                    for execution in executions {
                        remove_output(app, execution)?;
                        programs.discard(execution).map_err(EngineError::from)?;
                    }
                }
                Removal::Refused { because, .. } => {
                    refused.extend(unit.iter().map(|task| (*task, RetentionReason::from(because))));
                }
            }
        }
    }
    for decision in &mut plan.decisions {
        if let Some(rule) = refused.remove(&decision.task) {
            (decision.action, decision.rule) = (RetentionAction::Keep, rule);
        }
    }
    Ok(())
}

/// What an execution printed goes after its task: until then someone may want to read it.
fn remove_output(app: &App, execution: ExecutionId) -> Result<(), CliError> {
    let path = app.folder.output(execution);
    let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(CliError::io("remove", Path::new(&path), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_removed(decision: &RetentionDecision) -> bool {
    decision.action == RetentionAction::Remove
}

fn as_json(dry_run: bool, told: &[(&RetentionDecision, &TaskRow)]) -> Value {
    let removed = told.iter().filter(|(decision, _)| is_removed(decision)).count();
    let decisions: Vec<Value> = told
        .iter()
        .map(|(decision, row)| {
            json!({
                "task_id": decision.task,
                "assigned_agent": row.assigned_agent,
                "status": row.status,
                "completed_at": row.completed_at,
                "action": label(decision.action),
                "due_at": decision.due_at,
                "rule": decision.rule.to_string(),
            })
        })
        .collect();
    json!({
        "dry_run": dry_run,
        "removed": removed,
        "kept": told.len() - removed,
        "decisions": decisions,
    })
}

fn as_text(dry_run: bool, told: &[(&RetentionDecision, &TaskRow)]) -> String {
    let (go, stay): (Vec<_>, Vec<_>) = told.iter().partition(|(decision, _)| is_removed(decision));
    let (gone, kept) = (count(go.len(), "task"), count(stay.len(), "task"));
    let mut paragraphs = Vec::new();
    let listed_one_by_one = dry_run && stay.len() <= KEPT_LISTED_MAX;
    let listed: &[_] = if listed_one_by_one { &stay } else { &[] };
    if !(go.is_empty() && listed.is_empty()) {
        let rows = go.iter().chain(listed).map(|(decision, row)| line(decision, row));
        paragraphs.push(lines(&["TASK", "ACTION", "STATUS", "ENDED", "AGENT", "REASON"], rows));
    }
    if !listed_one_by_one && !stay.is_empty() {
        let mut rules: BTreeMap<String, usize> = BTreeMap::new();
        for (decision, _) in &stay {
            *rules.entry(summary(&decision.rule)).or_default() += 1;
        }
        let rows = rules.into_iter().map(|(rule, tasks)| [tasks.to_string(), rule]);
        paragraphs.push(table(["KEPT", "RULE"], rows));
    }
    paragraphs.push(if dry_run {
        format!("{gone} would be removed, {kept} kept; nothing was changed")
    } else {
        format!("removed {gone}, kept {kept}")
    });
    paragraphs.join("\n\n")
}

fn line(decision: &RetentionDecision, row: &TaskRow) -> Vec<String> {
    let when = match (decision.due_at, decision.action, &decision.rule) {
        (Some(due), RetentionAction::Keep, RetentionReason::SharedBy(_))
        | (Some(due), RetentionAction::Remove, _) => {
            format!(", due since {}", view::time(due))
        }
        (Some(due), RetentionAction::Keep, _) => format!(", kept until {}", view::time(due)),
        (None, _, _) => String::new(),
    };
    vec![
        view::short(decision.task),
        label(decision.action).to_owned(),
        row.status.to_string(),
        row.completed_at.map_or_else(|| "-".to_owned(), |at: Timestamp| view::time(at)),
        row.assigned_agent.to_string(),
        format!("{}{when}", decision.rule),
    ]
}

fn label(action: RetentionAction) -> &'static str {
    match action {
        RetentionAction::Remove => "remove",
        RetentionAction::Keep => "keep",
    }
}

/// What many tasks have in common of what decided about them.
fn summary(rule: &RetentionReason) -> String {
    match rule {
        RetentionReason::Own { .. } => "their own retention_days".to_owned(),
        RetentionReason::SharedBy(_) => "tasks were forked from them".to_owned(),
        RetentionReason::With(_) => "parts of others, which they go with".to_owned(),
        RetentionReason::Policy(_) | RetentionReason::Alive(_) | RetentionReason::LivingParts => {
            rule.to_string()
        }
    }
}
