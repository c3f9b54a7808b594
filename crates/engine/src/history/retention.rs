//! Retention: decides which ended tasks to remove.
//!
//! The rules are pure: rows, policy and time in, decisions out. A task is removed together with its
//! sub-agents' tasks. A task that was forked stays as long as its forks do, because they share its
//! history.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{RetentionPolicy, RetentionRule, RetentionStatus};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{RemovalBlocker, TaskRow};

const SECONDS_PER_DAY: i64 = 86_400;

/// The action on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionAction {
    /// The task is removed.
    Remove,
    /// The task is kept.
    Keep,
}

/// The decision about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionDecision {
    /// The task.
    pub task: TaskId,
    /// The action.
    pub action: RetentionAction,
    /// The time at which the task becomes due; none if it has not ended or the date overflows.
    pub due_at: Option<Timestamp>,
    /// The reason for the action.
    pub rule: RetentionReason,
}

/// The reason for keeping or removing a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetentionReason {
    /// The task's own `retention_days`.
    Own {
        /// The days.
        days: u32,
    },
    /// A rule of the policy.
    Policy(RetentionRule),
    /// The task has not ended.
    Alive(TaskStatus),
    /// A sub-agent's task has not ended.
    LivingParts,
    /// A fork of the task, or of a part of it, is kept.
    SharedBy(TaskId),
    /// The task shares the decision about its parent.
    With(TaskId),
    /// A repeated request with the same key is answered with the task.
    Repeatable,
}

impl fmt::Display for RetentionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { days } => write!(f, "its own retention_days {days}"),
            Self::Policy(rule) => rule.fmt(f),
            Self::Alive(TaskStatus::AwaitingHuman) => f.write_str("waits for a person"),
            Self::Alive(status) => write!(f, "still {status}"),
            Self::LivingParts => f.write_str("has running sub-agents"),
            Self::SharedBy(fork) => write!(f, "task {} was forked from it", short(*fork)),
            Self::With(top) => write!(f, "goes with task {}", short(*top)),
            Self::Repeatable => f.write_str("its Idempotency-Key is kept for a day"),
        }
    }
}

impl From<RemovalBlocker> for RetentionReason {
    fn from(blocker: RemovalBlocker) -> Self {
        match blocker {
            RemovalBlocker::NotEnded(status) => Self::Alive(status),
            RemovalBlocker::Parent(top) => Self::With(top),
            RemovalBlocker::SubTask(_) => Self::LivingParts,
            RemovalBlocker::Fork(fork) => Self::SharedBy(fork),
        }
    }
}

/// The first characters of an id, as in lists.
fn short(id: TaskId) -> String {
    id.to_string().chars().take(8).collect()
}

/// The decisions about all tasks of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// One decision per task, in the order of the rows.
    pub decisions: Vec<RetentionDecision>,
    /// The tasks to remove together, forks before their originals.
    pub units: Vec<Vec<TaskId>>,
}

/// Decides about every task. `rows` are all tasks of the store, newest first.
pub fn plan_retention(rows: &[TaskRow], policy: &RetentionPolicy, now: Timestamp) -> RetentionPlan {
    let forest = TaskForest::of(rows);
    let mut decided = BTreeMap::new();
    for (top, tree) in &forest.trees {
        if let Some(row) = forest.rows.get(top) {
            decided.insert(*top, decide(row, tree, policy, now));
        }
    }
    forest.keep_what_is_shared(&mut decided);
    let mut plan = RetentionPlan::default();
    for row in rows {
        let top = forest.top(row);
        let Some(of_top) = decided.get(&top) else { continue };
        let rule = if top == row.id { of_top.rule.clone() } else { with(row, top) };
        plan.decisions.push(RetentionDecision { task: row.id, rule, ..of_top.clone() });
        // Forks are newer than their originals, so they come first.
        if top == row.id
            && of_top.action == RetentionAction::Remove
            && let Some(tree) = forest.trees.get(&top)
        {
            plan.units.push(tree.iter().map(|row| row.id).collect());
        }
    }
    plan
}

/// A part that has not ended has its own reason; any other shares the decision about the whole.
fn with(row: &TaskRow, top: TaskId) -> RetentionReason {
    if row.status.is_final() {
        RetentionReason::With(top)
    } else {
        RetentionReason::Alive(row.status)
    }
}

/// Decides about a tree by its root, ignoring forks.
fn decide(
    top: &TaskRow,
    tree: &[&TaskRow],
    policy: &RetentionPolicy,
    now: Timestamp,
) -> RetentionDecision {
    let keep = |rule| RetentionDecision {
        task: top.id,
        action: RetentionAction::Keep,
        due_at: None,
        rule,
    };
    let (Some(ended), Some(status)) = (top.completed_at, ended_as(top.status)) else {
        return keep(RetentionReason::Alive(top.status));
    };
    if tree.iter().any(|row| !row.status.is_final()) {
        return keep(RetentionReason::LivingParts);
    }
    let (days, rule) = if let Some(days) = top.retention_days {
        (days, RetentionReason::Own { days })
    } else {
        let rule = policy.rule(top.class.as_deref(), status);
        (rule.days(), RetentionReason::Policy(rule))
    };
    let due_at = ended
        .checked_add(SignedDuration::from_secs(i64::from(days).saturating_mul(SECONDS_PER_DAY)))
        .ok();
    let action = if due_at.is_some_and(|due| due <= now) {
        RetentionAction::Remove
    } else {
        RetentionAction::Keep
    };
    RetentionDecision { task: top.id, action, due_at, rule }
}

/// The policy's name for the status of an ended task.
fn ended_as(status: TaskStatus) -> Option<RetentionStatus> {
    match status {
        TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman => None,
        TaskStatus::Completed => Some(RetentionStatus::Completed),
        TaskStatus::Failed => Some(RetentionStatus::Failed),
        TaskStatus::Cancelled => Some(RetentionStatus::Cancelled),
    }
}

/// Tasks and the trees that they form with their sub-agents.
struct TaskForest<'a> {
    rows: BTreeMap<TaskId, &'a TaskRow>,
    /// The trees by their roots.
    trees: BTreeMap<TaskId, Vec<&'a TaskRow>>,
}

impl<'a> TaskForest<'a> {
    fn of(rows: &'a [TaskRow]) -> Self {
        let by_id = rows.iter().map(|row| (row.id, row)).collect();
        let mut forest = Self { rows: by_id, trees: BTreeMap::new() };
        for row in rows {
            let top = forest.top(row);
            forest.trees.entry(top).or_default().push(row);
        }
        forest
    }

    /// The root of a task's tree. A task whose parent is missing is a root.
    fn top(&self, row: &TaskRow) -> TaskId {
        let (mut top, mut passed) = (row, BTreeSet::new());
        while let Some(parent) = top.parent_task_id.and_then(|parent| self.rows.get(&parent)) {
            // Guards against a cycle in the store.
            if !passed.insert(top.id) {
                break;
            }
            top = parent;
        }
        top.id
    }

    /// Keeps the originals of kept forks, transitively.
    fn keep_what_is_shared(&self, decided: &mut BTreeMap<TaskId, RetentionDecision>) {
        let stays = |decision: &RetentionDecision| decision.action == RetentionAction::Keep;
        let mut staying: Vec<TaskId> =
            decided.iter().filter(|(_, decision)| stays(decision)).map(|(top, _)| *top).collect();
        while let Some(top) = staying.pop() {
            let tree = self.trees.get(&top).into_iter().flatten();
            for (fork, origin) in tree.filter_map(|row| Some((row.id, row.forked_from?))) {
                let Some(origin) = self.rows.get(&origin).map(|row| self.top(row)) else {
                    continue;
                };
                if let Some(shared) = decided.get_mut(&origin)
                    && shared.action == RetentionAction::Remove
                {
                    shared.action = RetentionAction::Keep;
                    shared.rule = RetentionReason::SharedBy(fork);
                    staying.push(origin);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
