use polity_model::digest::Digest;

use super::*;
use crate::decide::cli_run::cli_agent;
use crate::decide::fixtures::prelude::*;
use crate::decide::fixtures::{task_id as id, task_row};

/// A task created in that second by the first process.
fn row(number: u8, status: TaskStatus) -> TaskRow {
    TaskRow {
        status,
        assigned_agent: "coder".parse().unwrap(),
        owner: Some(instance(1)),
        created_at: Timestamp::from_second(i64::from(number)).unwrap(),
        started_at: None,
        completed_at: None,
        dedup_key: Some(Digest::of(b"the same")),
        ..task_row(number)
    }
}

/// The original of a task created in second 100.
fn original(others: Vec<TaskRow>, with_pending: bool) -> Option<TaskId> {
    let newest = std::iter::once(row(100, TaskStatus::Running));
    let mut rows: Vec<_> = newest.chain(others).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.created_position));
    let state = run_queued();
    let mut cli = cli_agent(&state).unwrap().clone();
    cli.deduplicate_seconds = std::num::NonZeroU64::new(60);
    let tasks = DuplicateTasks { rows: &rows, with_pending };
    tasks.original_of(id(100), &cli, |owner| owner == instance(1))
}

#[test]
fn shares_only_completed_and_live_tasks() {
    for (status, shares) in [
        (TaskStatus::Completed, true),
        (TaskStatus::Running, true),
        (TaskStatus::Pending, true),
        (TaskStatus::AwaitingHuman, false),
        (TaskStatus::Failed, false),
        (TaskStatus::Cancelled, false),
    ] {
        assert_eq!(original(vec![row(90, status)], true), shares.then(|| id(90)), "{status}");
    }
    assert_eq!(original(vec![row(90, TaskStatus::Pending)], false), None);
    let left = TaskRow { owner: Some(instance(2)), ..row(90, TaskStatus::Running) };
    assert_eq!(original(vec![left], true), None);
}

#[test]
fn shares_the_oldest_original_within_the_window() {
    use TaskStatus::{Completed, Running};
    let of = |others| original(others, true);
    assert_eq!(of(vec![row(39, Completed), row(40, Running), row(90, Running)]), Some(id(40)));
    assert_eq!(of(vec![row(39, Completed)]), None);
    assert_eq!(of(vec![row(101, Completed)]), None);
    // The clock was set back after the older task, which is out of the window on the other side.
    let ahead = |second| TaskRow {
        created_at: Timestamp::from_second(second).unwrap(),
        ..row(39, Completed)
    };
    assert_eq!(of(vec![ahead(160)]), Some(id(39)));
    assert_eq!(of(vec![ahead(161)]), None);
    let sharing = TaskRow { shared_with: Some(id(39)), ..row(90, Completed) };
    assert_eq!(of(vec![row(39, Completed), sharing]), None);
    // A duplicate whose original failed runs next, and the others wait for it.
    let waiting = || TaskRow { shared_with: Some(id(39)), ..row(90, Running) };
    assert_eq!(of(vec![row(39, TaskStatus::Failed), waiting()]), Some(id(90)));
    assert_eq!(of(vec![row(39, Running), waiting()]), None);
    assert_eq!(original(vec![row(39, TaskStatus::Failed), waiting()], false), None);
}
