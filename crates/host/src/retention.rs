//! Removal of ended tasks by the retention policy, with the output of their executions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use polity_definition::{Home, is_retention_policy};
use polity_engine::clock::{Clock, SystemClock};
use polity_engine::driver::RunCleanup;
use polity_engine::retention::{
    RetentionAction, RetentionDecision, RetentionPlan, RetentionReason, plan_retention,
};
use polity_engine::runtime::{EngineError, clean_up_runs};
use polity_files::remove_tree;
use polity_model::event::{Event, JournalPosition};
use polity_model::ids::{ExecutionId, TaskId};
use polity_store::{RemovalOutcome, Store, TaskFilter, TaskRow};

use crate::context::HostContext;
use crate::error::HostError;

/// The most units removed in one transaction, which bounds the time that others wait for the store.
const UNITS_PER_TRANSACTION: usize = 64;

/// The time for which a request with a key may be repeated.
const REPEATABLE_TIME: SignedDuration = SignedDuration::from_hours(24);

/// The decision about every task, with its row.
pub struct CleanupReport {
    /// Every task with the decision about it.
    pub decisions: Vec<(RetentionDecision, TaskRow)>,
}

/// Removes the tasks that the retention policy no longer keeps. A dry run only decides.
pub async fn clean_up(
    context: &HostContext,
    home: &Home,
    dry_run: bool,
) -> Result<CleanupReport, HostError> {
    expect_policy(home)?;
    // A home without a database has no tasks, and none is created.
    let writes = !dry_run && context.folder().database().exists();
    let store = if writes { context.open_writer(home)? } else { context.open_reader()? };
    let rows = store.task_rows(&TaskFilter::default()).await?;
    let mut plan = plan_retention(&rows, &home.retention_policy, SystemClock.now());
    keep_repeatable(&store, &rows, &mut plan, SystemClock.now()).await?;
    if writes {
        // Files of tasks that have ended, whose owner died before it could remove them.
        clean_up_runs(&store, &*context.programs(home)?, &context.leases()).await?;
        carry_out(context, &*context.programs(home)?, &store, &mut plan).await?;
    }
    let mut rows: BTreeMap<TaskId, TaskRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    let decisions = plan.decisions.into_iter().filter_map(|decision| {
        let row = rows.remove(&decision.task)?;
        Some((decision, row))
    });
    Ok(CleanupReport { decisions: decisions.collect() })
}

/// Removes the tasks that the retention policy no longer keeps from an open store. Returns their
/// number.
pub async fn remove_expired(
    context: &HostContext,
    home: &Home,
    store: &dyn Store,
) -> Result<usize, HostError> {
    expect_policy(home)?;
    let rows = store.task_rows(&TaskFilter::default()).await?;
    let mut plan = plan_retention(&rows, &home.retention_policy, SystemClock.now());
    keep_repeatable(store, &rows, &mut plan, SystemClock.now()).await?;
    carry_out(context, &*context.programs(home)?, store, &mut plan).await?;
    let is_removed = |decision: &&RetentionDecision| match decision.action {
        RetentionAction::Remove => true,
        RetentionAction::Keep => false,
    };
    Ok(plan.decisions.iter().filter(is_removed).count())
}

/// Keeps the tasks whose requests may still be repeated: the journal of a task remembers the key of
/// its request.
async fn keep_repeatable(
    store: &dyn Store,
    rows: &[TaskRow],
    plan: &mut RetentionPlan,
    now: Timestamp,
) -> Result<(), HostError> {
    let Ok(since) = now.checked_sub(REPEATABLE_TIME) else { return Ok(()) };
    let young: BTreeMap<TaskId, &TaskRow> =
        rows.iter().filter(|row| row.created_at > since).map(|row| (row.id, row)).collect();
    let (mut units, mut kept, mut tops) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for unit in std::mem::take(&mut plan.units) {
        let mut top = None;
        for row in unit.iter().filter_map(|task| young.get(task)) {
            if row.parent_task_id.is_none() && has_key(store, row).await? {
                top = Some(row.id);
            }
        }
        match top {
            Some(top) => {
                tops.insert(top);
                kept.extend(unit);
            }
            None => units.push(unit),
        }
    }
    plan.units = units;
    for decision in plan.decisions.iter_mut().filter(|decision| kept.contains(&decision.task)) {
        decision.action = RetentionAction::Keep;
        if tops.contains(&decision.task) {
            decision.rule = RetentionReason::Repeatable;
        }
    }
    Ok(())
}

/// True if a task was started by a request with a key.
async fn has_key(store: &dyn Store, row: &TaskRow) -> Result<bool, HostError> {
    let before = JournalPosition(row.created_position.0.saturating_sub(1));
    let first = store.events_after(before, 1).await?.pop();
    Ok(match first.map(|first| first.event) {
        Some(Event::TaskCreated(created)) => created.idempotency.is_some(),
        Some(_) | None => false,
    })
}

/// Refuses a policy with a mistake, which could remove tasks that should be kept.
fn expect_policy(home: &Home) -> Result<(), HostError> {
    let of_policy = home.problems.iter().filter(|problem| is_retention_policy(&problem.file));
    let problems: Vec<_> = of_policy.cloned().collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(HostError::invalid("the retention policy is not valid", problems))
}

/// Removes the planned units. A unit that changed meanwhile is refused and its decision becomes keep.
async fn carry_out(
    context: &HostContext,
    runs: &dyn RunCleanup,
    store: &dyn Store,
    plan: &mut RetentionPlan,
) -> Result<(), HostError> {
    let mut refused: BTreeMap<TaskId, RetentionReason> = BTreeMap::new();
    for units in plan.units.chunks(UNITS_PER_TRANSACTION) {
        let answers = store.remove(units.to_vec()).await?;
        for (unit, answer) in units.iter().zip(answers) {
            match answer {
                RemovalOutcome::Removed { executions, .. } => {
                    for execution in executions {
                        remove_output(context, execution)?;
                        runs.remove_workspace(execution).map_err(EngineError::from)?;
                    }
                }
                RemovalOutcome::Refused { blocker, .. } => {
                    refused.extend(unit.iter().map(|task| (*task, RetentionReason::from(blocker))));
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

/// Removes the output of an execution, after its task is gone from the store.
fn remove_output(context: &HostContext, execution: ExecutionId) -> Result<(), HostError> {
    let path = context.folder().output(execution);
    remove_tree(&path).map_err(|error| HostError::io("remove", &path, error))
}
