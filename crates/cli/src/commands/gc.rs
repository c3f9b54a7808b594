//! `polity gc`: removes tasks by the retention policy and explains the decisions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polity_engine::retention::{RetentionAction, RetentionDecision, RetentionReason};
use polity_host::clean_up;
use polity_store::TaskRow;
use serde_json::{Value, json};

use crate::app::AppContext;
use crate::args::GcArgs;
use crate::error::CliResult;
use crate::view::{count, lines, table, task as view};

/// The most kept tasks that are listed one by one; more are summed up by reason.
const KEPT_LISTED_MAX: usize = 50;

pub(crate) async fn gc(app: &AppContext, args: &GcArgs) -> CliResult {
    let home = app.definitions()?;
    let report = clean_up(&app.context, &home, args.dry_run).await?;
    let decisions: Vec<_> =
        report.decisions.iter().map(|(decision, row)| (decision, row)).collect();
    app.print(&as_json(args.dry_run, &decisions), || as_text(args.dry_run, &decisions))
}

fn is_removed(decision: &RetentionDecision) -> bool {
    decision.action == RetentionAction::Remove
}

fn as_json(dry_run: bool, told: &[(&RetentionDecision, &TaskRow)]) -> Value {
    let removed = told.iter().filter(|(decision, _)| is_removed(decision)).count();
    let document = |(decision, row): &(&RetentionDecision, &TaskRow)| {
        json!({
            "task_id": decision.task,
            "assigned_agent": row.assigned_agent,
            "status": row.status,
            "completed_at": row.completed_at,
            "action": label(decision.action),
            "due_at": decision.due_at,
            "rule": decision.rule.to_string(),
        })
    };
    let (kept, decisions) = (told.len() - removed, told.iter().map(document).collect::<Value>());
    json!({"dry_run": dry_run, "removed": removed, "kept": kept, "decisions": decisions})
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

/// The reason without the details of one task.
fn summary(rule: &RetentionReason) -> String {
    match rule {
        RetentionReason::Own { .. } => "their own retention_days".to_owned(),
        RetentionReason::SharedBy(_) => "tasks were forked from them".to_owned(),
        RetentionReason::With(_) => "parts of other tasks, removed together with them".to_owned(),
        RetentionReason::Repeatable => "their Idempotency-Keys are kept for a day".to_owned(),
        RetentionReason::Policy(_) | RetentionReason::Alive(_) | RetentionReason::LivingParts => {
            rule.to_string()
        }
    }
}
