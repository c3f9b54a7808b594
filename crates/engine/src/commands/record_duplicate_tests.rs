use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, OwnerEpoch};
use polity_model::usage::Usage;

use super::*;
use crate::commands::testing::{ctx, instance, labels, program_queued, program_running, with};
use crate::decide::Effect;

fn id(number: u8) -> TaskId {
    TaskId::from_random_bytes([number; 16])
}

/// A task that was created in that second by the first process.
fn row(number: u8, status: TaskStatus) -> TaskRow {
    TaskRow {
        id: id(number),
        status,
        assigned_agent: "coder".parse().unwrap(),
        owner: Some(instance(1)),
        epoch: OwnerEpoch(1),
        created_at: Timestamp::from_second(i64::from(number)).unwrap(),
        started_at: None,
        completed_at: None,
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
        request: Some(Digest::of(b"the same")),
        shared_with: None,
    }
}

/// The twin of a task that was created in the hundredth second.
fn twin(others: Vec<TaskRow>, with_pending: bool) -> Option<TaskId> {
    let newest = std::iter::once(row(100, TaskStatus::Running));
    let mut rows: Vec<_> = newest.chain(others).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.created_position));
    let state = program_queued();
    let mut cli = program(&state).unwrap().clone();
    cli.deduplicate_seconds = std::num::NonZeroU64::new(60);
    let twins = DuplicateTasks { rows: &rows, with_pending };
    twins.of(id(100), &cli, |owner| owner == instance(1))
}

#[test]
fn only_what_succeeded_or_is_at_work_is_shared() {
    for (status, shares) in [
        (TaskStatus::Completed, true),
        (TaskStatus::Running, true),
        (TaskStatus::Pending, true),
        (TaskStatus::AwaitingHuman, false),
        (TaskStatus::Failed, false),
        (TaskStatus::Cancelled, false),
    ] {
        assert_eq!(twin(vec![row(90, status)], true), shares.then(|| id(90)), "{status}");
    }
    assert_eq!(twin(vec![row(90, TaskStatus::Pending)], false), None);
    let left = TaskRow { owner: Some(instance(2)), ..row(90, TaskStatus::Running) };
    assert_eq!(twin(vec![left], true), None);
}

#[test]
fn the_oldest_within_the_time_is_shared_and_no_one_shares_what_is_shared() {
    use TaskStatus::{Completed, Running};
    let of = |others| twin(others, true);
    assert_eq!(of(vec![row(39, Completed), row(40, Running), row(90, Running)]), Some(id(40)));
    assert_eq!(of(vec![row(39, Completed)]), None);
    assert_eq!(of(vec![row(101, Completed)]), None);
    let sharing = TaskRow { shared_with: Some(id(39)), ..row(90, Completed) };
    assert_eq!(of(vec![row(39, Completed), sharing]), None);
    // One that waited in vain runs next, and the others wait for it.
    let waiting = || TaskRow { shared_with: Some(id(39)), ..row(90, Running) };
    assert_eq!(of(vec![row(39, TaskStatus::Failed), waiting()]), Some(id(90)));
    assert_eq!(of(vec![row(39, Running), waiting()]), None);
    assert_eq!(twin(vec![row(39, TaskStatus::Failed), waiting()], false), None);
}

#[test]
fn what_came_of_the_twin_is_the_result() {
    let state = with(program_queued(), vec![Event::RunShared { with: id(9) }]);
    let told = RecordDuplicate { result: Some("done".into()) };
    let decision = told.decide(&state, &mut ctx()).unwrap();
    let task = with(state.clone(), decision.events).snapshot();
    assert_eq!((task.result.as_deref(), task.shared_with), (Some("done"), Some(id(9))));
    let state = with(state, vec![Event::CancelRequested]);
    let decision = told.decide(&state, &mut ctx()).unwrap();
    assert_eq!(labels(&decision), ["task_cancelled"]);
    let refused = told.decide(&program_running(), &mut ctx());
    assert!(matches!(refused, Err(CommandRejection::OutOfPlace { .. })), "{refused:?}");
}

#[test]
fn where_nothing_came_of_it_another_is_shared_or_the_program_is_run() {
    let state = with(program_queued(), vec![Event::RunShared { with: id(9) }]);
    let told = RecordDuplicate { result: None };
    let decision = told.decide(&state, &mut ctx()).unwrap();
    assert_eq!(decision.effects, [Effect::WaitForSlot]);
}
