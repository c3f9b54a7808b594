//! Which ended tasks are to go, and why the others stay. Pure: rows, policy and time in, decisions
//! out.
//!
//! A task goes as one with the tasks of its sub-agents. A task that others were forked from stays
//! for as long as they do, because they share its history.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use polity_definition::{RetentionPolicy, RetentionRule, RetentionStatus};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use polity_store::{Kept, TaskRow};

const SECONDS_PER_DAY: i64 = 86_400;

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetentionAction {
    /// It goes.
    Remove,
    /// It stays.
    Keep,
}

/// What was decided about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionDecision {
    /// The task.
    pub task: TaskId,
    /// What becomes of it.
    pub action: RetentionAction,
    /// When its time is over. None while it lives, or where that is beyond all calendars.
    pub due_at: Option<Timestamp>,
    /// What decided.
    pub rule: RetentionReason,
}

/// What decides about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetentionReason {
    /// The task says itself for how many days it is kept.
    Own {
        /// The days.
        days: u32,
    },
    /// The policy says it.
    Policy(RetentionRule),
    /// It has not ended.
    Alive(TaskStatus),
    /// A sub-agent's task below it has not ended.
    LivingParts,
    /// A fork of it, or of one of its parts, stays.
    SharedBy(TaskId),
    /// It goes or stays with the task that it is a part of.
    With(TaskId),
}

impl fmt::Display for RetentionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own { days } => write!(f, "its own retention_days {days}"),
            Self::Policy(rule) => rule.fmt(f),
            Self::Alive(TaskStatus::AwaitingHuman) => f.write_str("waits for a person"),
            Self::Alive(status) => write!(f, "still {status}"),
            Self::LivingParts => f.write_str("has living sub-agents"),
            Self::SharedBy(fork) => write!(f, "task {} was forked from it", short(*fork)),
            Self::With(top) => write!(f, "goes with task {}", short(*top)),
        }
    }
}

impl From<Kept> for RetentionReason {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Alive(status) => Self::Alive(status),
            Kept::PartOf(top) => Self::With(top),
            Kept::HasPart(_) => Self::LivingParts,
            Kept::SharedBy(fork) => Self::SharedBy(fork),
        }
    }
}

/// As much of an id as lists show.
fn short(id: TaskId) -> String {
    id.to_string().chars().take(8).collect()
}

/// What is to be done about all tasks of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// One for each task, in the order of the rows.
    pub decisions: Vec<RetentionDecision>,
    /// The tasks that go together, in the order in which they are to go: forks before that which
    /// they were forked from.
    pub units: Vec<Vec<TaskId>>,
}

/// Decides about every task. `rows` are all that the store has, newest first.
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
        // Forks are younger than what they were forked from, so they come first here.
        if top == row.id
            && of_top.action == RetentionAction::Remove
            && let Some(tree) = forest.trees.get(&top)
        {
            plan.units.push(tree.iter().map(|row| row.id).collect());
        }
    }
    plan
}

/// A part that lives says so; any other goes the way of the whole.
fn with(row: &TaskRow, top: TaskId) -> RetentionReason {
    if row.status.is_final() {
        RetentionReason::With(top)
    } else {
        RetentionReason::Alive(row.status)
    }
}

/// Decides about a tree by its top, as if there were no forks.
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

/// The status as policies name it, of a task that has ended.
fn ended_as(status: TaskStatus) -> Option<RetentionStatus> {
    match status {
        TaskStatus::Pending | TaskStatus::Running | TaskStatus::AwaitingHuman => None,
        TaskStatus::Completed => Some(RetentionStatus::Completed),
        TaskStatus::Failed => Some(RetentionStatus::Failed),
        TaskStatus::Cancelled => Some(RetentionStatus::Cancelled),
    }
}

/// Tasks, and the trees that they form with their sub-agents.
struct TaskForest<'a> {
    rows: BTreeMap<TaskId, &'a TaskRow>,
    /// By the task at the top.
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

    /// The task at the top of a task's tree. One whose parent is not there is a top itself.
    fn top(&self, row: &TaskRow) -> TaskId {
        let (mut top, mut passed) = (row, BTreeSet::new());
        while let Some(parent) = top.parent_task_id.and_then(|parent| self.rows.get(&parent)) {
            // No task is above itself, but a store that says so must not hold this up for ever.
            if !passed.insert(top.id) {
                break;
            }
            top = parent;
        }
        top.id
    }

    /// A tree that stays keeps the trees that its tasks were forked from, and those keep theirs.
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
