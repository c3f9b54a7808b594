use polity_definition::{Home, SourceFile};
use polity_model::event::{JournalPosition, OwnerEpoch};
use polity_model::usage::Usage;

use super::*;

const DAY: i64 = SECONDS_PER_DAY;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(number: u8) -> TaskId {
    TaskId::from_random_bytes([number; 16])
}

/// A task that was completed at the beginning of time.
fn row(number: u8) -> TaskRow {
    TaskRow {
        id: id(number),
        status: TaskStatus::Completed,
        assigned_agent: "greeter".parse().unwrap(),
        owner: None,
        epoch: OwnerEpoch(1),
        created_at: at(0),
        started_at: Some(at(0)),
        completed_at: Some(at(0)),
        error_code: None,
        class: None,
        retention_days: None,
        parent_task_id: None,
        usage: Usage::default(),
        message_count: 1,
        checkpoint_count: 0,
        created_position: JournalPosition(u64::from(number)),
        answer_position: None,
        result_position: None,
        failure_position: None,
        forked_from: None,
        review_deadline: None,
        request: None,
        shared_with: None,
    }
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
    Home::parse(vec![SourceFile { path, text }]).retention_policy
}

/// The plan for these tasks, given oldest first, and what it says of each.
fn told(rows: &[TaskRow], now: i64) -> (RetentionPlan, Vec<(RetentionAction, String)>) {
    let newest_first: Vec<_> = rows.iter().rev().cloned().collect();
    let mut plan = plan_retention(&newest_first, &policy(), at(now));
    plan.decisions.reverse();
    assert!(rows.iter().map(|row| row.id).eq(plan.decisions.iter().map(|each| each.task)));
    let told = plan.decisions.iter().map(|each| (each.action, each.rule.to_string())).collect();
    (plan, told)
}

#[test]
fn the_nearest_rule_decides_for_how_long_a_task_is_kept() {
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
            let (plan, told) = told(std::slice::from_ref(&task), now);
            assert_eq!(told, [(action, rule.to_owned())]);
            assert_eq!(plan.decisions[0].due_at, Some(at(due)));
            let units = if action == RetentionAction::Remove { vec![vec![id(1)]] } else { vec![] };
            assert_eq!(plan.units, units);
        }
    }
}

#[test]
fn a_time_beyond_all_calendars_is_never_over() {
    let (plan, told) = told(&[kept_for(u32::MAX, row(1))], 9999 * DAY);
    assert_eq!(told[0].0, RetentionAction::Keep);
    assert_eq!((plan.decisions[0].due_at, plan.units), (None, vec![]));
}

#[test]
fn the_living_are_never_removed() {
    use TaskStatus::{AwaitingHuman, Pending, Running};
    for (status, rule) in [
        (Pending, "still pending"),
        (Running, "still running"),
        (AwaitingHuman, "waits for a person"),
    ] {
        let (plan, told) = told(&[kept_for(0, living(1, status))], 99 * DAY);
        assert_eq!(told, [(RetentionAction::Keep, rule.to_owned())]);
        assert_eq!((plan.decisions[0].due_at, plan.units), (None, vec![]));
    }
}

#[test]
fn a_tree_goes_as_one_with_its_top() {
    let rows = [row(1), kept_for(0, part(2, 1)), kept_for(999, part(3, 2))];
    let (plan, told) = told(&rows, 7 * DAY);
    let with = format!("goes with task {}", short(id(1)));
    assert_eq!(told[0], (RetentionAction::Remove, "default: 7".to_owned()));
    assert_eq!(
        told[1..],
        [(RetentionAction::Remove, with.clone()), (RetentionAction::Remove, with.clone())]
    );
    assert_eq!(plan.units, [[id(3), id(2), id(1)]]);
    // A part whose own time is over stays while the top does.
    let (plan, told) = self::told(&rows, 6 * DAY);
    assert_eq!(told[1], (RetentionAction::Keep, with));
    assert_eq!(plan.units, Vec::<Vec<TaskId>>::new());
}

#[test]
fn a_task_with_a_living_part_at_any_depth_stays() {
    let lives = TaskRow { parent_task_id: Some(id(2)), ..living(3, TaskStatus::AwaitingHuman) };
    let (plan, told) = told(&[kept_for(0, row(1)), part(2, 1), lives], 99 * DAY);
    assert_eq!(told[0], (RetentionAction::Keep, "has living sub-agents".to_owned()));
    assert_eq!(told[1].0, RetentionAction::Keep);
    assert_eq!(told[2], (RetentionAction::Keep, "waits for a person".to_owned()));
    assert_eq!(plan.units, Vec::<Vec<TaskId>>::new());
}

#[test]
fn what_a_fork_shares_stays_as_long_as_the_fork() {
    // 1 was forked into 2, and 2 into 3, which stays. 4 was forked from 1 and may go.
    let rows = [row(1), fork(2, 1), kept_for(30, fork(3, 2)), fork(4, 1)];
    let (plan, told) = told(&rows, 8 * DAY);
    let shared = |by| (RetentionAction::Keep, format!("task {} was forked from it", short(id(by))));
    assert_eq!(told[..2], [shared(2), shared(3)]);
    assert_eq!(told[2], (RetentionAction::Keep, "its own retention_days 30".to_owned()));
    assert_eq!(plan.decisions[0].due_at, Some(at(7 * DAY)));
    assert_eq!(plan.units, [[id(4)]]);
    // When all of the chain is due it goes, the forks first.
    let (plan, _) = self::told(&rows, 30 * DAY);
    assert_eq!(plan.units, [[id(4)], [id(3)], [id(2)], [id(1)]]);
}

#[test]
fn a_living_fork_of_a_part_keeps_the_whole_tree() {
    let lives = TaskRow { forked_from: Some(id(2)), ..living(3, TaskStatus::Running) };
    let (plan, told) = told(&[row(1), part(2, 1), lives], 99 * DAY);
    assert_eq!(
        told[0],
        (RetentionAction::Keep, format!("task {} was forked from it", short(id(3))))
    );
    assert_eq!((told[1].0, plan.units), (RetentionAction::Keep, vec![]));
}

#[test]
fn a_part_whose_top_is_not_there_stands_for_itself() {
    let (plan, told) = told(&[part(2, 1)], 7 * DAY);
    assert_eq!(told, [(RetentionAction::Remove, "default: 7".to_owned())]);
    assert_eq!(plan.units, [[id(2)]]);
}

#[test]
fn tasks_that_claim_to_be_above_themselves_do_not_hold_it_up() {
    let (plan, _) = told(&[part(1, 2), part(2, 1)], 7 * DAY);
    assert!(plan.decisions.len() <= 2);
}
