use polity_definition::{Home, HomeFile};

use super::*;
use crate::decide::fixtures::{task_id as id, task_row as row};

const DAY: i64 = SECONDS_PER_DAY;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn living(number: u8, status: TaskStatus) -> TaskRow {
    TaskRow { status, completed_at: None, ..row(number) }
}

fn part(number: u8, of: u8) -> TaskRow {
    TaskRow { parent_task_id: Some(id(of)), ..row(number) }
}

fn fork(number: u8, of: u8) -> TaskRow {
    TaskRow { forked_from: Some(id(of)), ..row(number) }
}

fn kept_for(days: u32, row: TaskRow) -> TaskRow {
    TaskRow { retention_days: Some(days), ..row }
}

fn policy() -> RetentionPolicy {
    let text = "by_task: {critical: 30, fleeting: 0}\nby_status: {failed: 14, cancelled: 1}\n";
    let (path, text) = ("config/retention_policy.yaml".to_owned(), Ok(text.to_owned()));
    Home::parse(vec![HomeFile { path, text }]).retention_policy
}

/// The plan for these tasks, oldest first, and the decision about each.
fn decided(rows: &[TaskRow], now: i64) -> (RetentionPlan, Vec<(RetentionAction, String)>) {
    let newest_first: Vec<_> = rows.iter().rev().cloned().collect();
    let mut plan = plan_retention(&newest_first, &policy(), at(now));
    plan.decisions.reverse();
    assert!(rows.iter().map(|row| row.id).eq(plan.decisions.iter().map(|each| each.task)));
    let decided = plan.decisions.iter().map(|each| (each.action, each.rule.to_string())).collect();
    (plan, decided)
}

#[test]
fn most_specific_retention_rule_applies() {
    use TaskStatus::{Cancelled, Completed, Failed};
    for (own, class, status, days, rule) in [
        (None, None, Completed, 7, "default: 7"),
        (None, Some("unknown"), Completed, 7, "default: 7"),
        (None, None, Failed, 14, "status failed: 14"),
        (None, None, Cancelled, 1, "status cancelled: 1"),
        (None, Some("critical"), Completed, 30, "class critical: 30"),
        (None, Some("critical"), Failed, 30, "class critical: 30"),
        (None, Some("fleeting"), Failed, 0, "class fleeting: 0"),
        (Some(3), None, Completed, 3, "its own retention_days 3"),
        (Some(3), Some("critical"), Failed, 3, "its own retention_days 3"),
        (Some(90), Some("fleeting"), Cancelled, 90, "its own retention_days 90"),
        (Some(0), Some("critical"), Completed, 0, "its own retention_days 0"),
    ] {
        let class = class.map(str::to_owned);
        let task = TaskRow { retention_days: own, class, status, ..row(1) };
        let due = days * DAY;
        for (now, action) in [(due - 1, RetentionAction::Keep), (due, RetentionAction::Remove)] {
            let (plan, decided) = decided(std::slice::from_ref(&task), now);
            assert_eq!(decided, [(action, rule.to_owned())]);
            assert_eq!(plan.decisions[0].due_at, Some(at(due)));
            let units = if action == RetentionAction::Remove { vec![vec![id(1)]] } else { vec![] };
            assert_eq!(plan.units, units);
        }
    }
}

#[test]
fn overflowing_due_date_never_comes() {
    let (plan, decided) = decided(&[kept_for(u32::MAX, row(1))], 9999 * DAY);
    assert_eq!(decided[0].0, RetentionAction::Keep);
    assert_eq!((plan.decisions[0].due_at, plan.units), (None, vec![]));
}

#[test]
fn unfinished_tasks_are_kept() {
    use TaskStatus::{AwaitingHuman, Pending, Running};
    for (status, rule) in [
        (Pending, "still pending"),
        (Running, "still running"),
        (AwaitingHuman, "waits for a person"),
    ] {
        let (plan, decided) = decided(&[kept_for(0, living(1, status))], 99 * DAY);
        assert_eq!(decided, [(RetentionAction::Keep, rule.to_owned())]);
        assert_eq!((plan.decisions[0].due_at, plan.units), (None, vec![]));
    }
}

#[test]
fn sub_agent_tasks_are_removed_with_their_root() {
    let rows = [row(1), kept_for(0, part(2, 1)), kept_for(999, part(3, 2))];
    let (plan, decided) = decided(&rows, 7 * DAY);
    let with = format!("goes with task {}", short(id(1)));
    assert_eq!(decided[0], (RetentionAction::Remove, "default: 7".to_owned()));
    assert_eq!(
        decided[1..],
        [(RetentionAction::Remove, with.clone()), (RetentionAction::Remove, with.clone())]
    );
    assert_eq!(plan.units, [[id(3), id(2), id(1)]]);
    // A part that is due stays while its root does.
    let (plan, decided) = self::decided(&rows, 6 * DAY);
    assert_eq!(decided[1], (RetentionAction::Keep, with));
    assert_eq!(plan.units, Vec::<Vec<TaskId>>::new());
}

#[test]
fn unfinished_descendant_keeps_the_tree() {
    let unfinished =
        TaskRow { parent_task_id: Some(id(2)), ..living(3, TaskStatus::AwaitingHuman) };
    let (plan, decided) = decided(&[kept_for(0, row(1)), part(2, 1), unfinished], 99 * DAY);
    assert_eq!(decided[0], (RetentionAction::Keep, "has running sub-agents".to_owned()));
    assert_eq!(decided[1].0, RetentionAction::Keep);
    assert_eq!(decided[2], (RetentionAction::Keep, "waits for a person".to_owned()));
    assert_eq!(plan.units, Vec::<Vec<TaskId>>::new());
}

#[test]
fn kept_fork_keeps_its_originals() {
    // 2 is a fork of 1, and 3 of 2. 3 is kept. 4 is a fork of 1 and may be removed.
    let rows = [row(1), fork(2, 1), kept_for(30, fork(3, 2)), fork(4, 1)];
    let (plan, decided) = decided(&rows, 8 * DAY);
    let shared = |by| (RetentionAction::Keep, format!("task {} was forked from it", short(id(by))));
    assert_eq!(decided[..2], [shared(2), shared(3)]);
    assert_eq!(decided[2], (RetentionAction::Keep, "its own retention_days 30".to_owned()));
    assert_eq!(plan.decisions[0].due_at, Some(at(7 * DAY)));
    assert_eq!(plan.units, [[id(4)]]);
    // A chain that is due is removed, forks first.
    let (plan, _) = self::decided(&rows, 30 * DAY);
    assert_eq!(plan.units, [[id(4)], [id(3)], [id(2)], [id(1)]]);
}

#[test]
fn unfinished_fork_of_a_part_keeps_the_tree() {
    let unfinished = TaskRow { forked_from: Some(id(2)), ..living(3, TaskStatus::Running) };
    let (plan, decided) = decided(&[row(1), part(2, 1), unfinished], 99 * DAY);
    assert_eq!(
        decided[0],
        (RetentionAction::Keep, format!("task {} was forked from it", short(id(3))))
    );
    assert_eq!((decided[1].0, plan.units), (RetentionAction::Keep, vec![]));
}

#[test]
fn task_with_missing_parent_is_a_root() {
    let (plan, decided) = decided(&[part(2, 1)], 7 * DAY);
    assert_eq!(decided, [(RetentionAction::Remove, "default: 7".to_owned())]);
    assert_eq!(plan.units, [[id(2)]]);
}

#[test]
fn parent_cycle_terminates() {
    let (plan, decided) = decided(&[part(1, 2), part(2, 1)], 7 * DAY);
    assert_eq!((plan.decisions.len(), decided.len(), plan.units.len()), (2, 2, 2));
}
