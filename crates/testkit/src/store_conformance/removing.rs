//! Cases of removed tasks.

use polity_model::event::{Event, JournalPosition};
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitError, ImportError, RemovalBlocker, RemovalOutcome, TaskImport};

use super::{SharedStore, begin, complete, events_of, run, task_ids};
use crate::task_fixtures::{
    at, claimed, commit, created, created_under, definition, execution_id, forked, instance_id,
    task_id,
};

fn finished(store: &SharedStore, number: u64) {
    begin(store, task_id(number));
    run(store, task_id(number), number);
    complete(store, task_id(number), number);
}

/// A task that ends before it does anything.
fn cancelled(store: &SharedStore, number: u64, first: Event) {
    let events = vec![first, claimed(instance_id(1), 1), Event::TaskCancelled];
    let mut commit = commit(task_id(number), 0, Some(1), events);
    commit.definitions.push(definition());
    store.commit(commit).wait().unwrap();
}

fn remove(store: &SharedStore, units: &[&[u64]]) -> Vec<RemovalOutcome> {
    let ids = |unit: &&[u64]| unit.iter().map(|number| task_id(*number)).collect();
    store.remove(units.iter().map(ids).collect()).wait().unwrap()
}

fn removed(numbers: &[u64], executions: &[u64]) -> RemovalOutcome {
    RemovalOutcome::Removed {
        tasks: numbers.iter().map(|number| task_id(*number)).collect(),
        executions: executions.iter().map(|number| execution_id(*number)).collect(),
    }
}

fn refused(number: u64, blocker: RemovalBlocker) -> RemovalOutcome {
    RemovalOutcome::Refused { task: task_id(number), blocker }
}

/// Removal deletes everything of a task except its spending.
pub fn removal_deletes_all_rows_of_a_task(store: &SharedStore) {
    finished(store, 1);
    finished(store, 2);
    let (spent, row) =
        (store.spending().wait().unwrap(), store.task_row(task_id(2)).wait().unwrap());
    let others = events_of(store, 2);
    assert_eq!(remove(store, &[&[1]]), [removed(&[1], &[1])]);
    assert_eq!(store.task_row(task_id(1)).wait().unwrap(), None);
    assert_eq!(events_of(store, 1), []);
    assert_eq!(store.messages(task_id(1)).wait().unwrap(), []);
    assert_eq!(store.checkpoints(task_id(1)).wait().unwrap(), []);
    assert_eq!(store.executions(task_id(1)).wait().unwrap(), []);
    assert_eq!(store.task_ids_by_prefix(&task_id(1).to_string(), 9).wait().unwrap(), []);
    assert_eq!(store.spending().wait().unwrap(), spent);
    assert_eq!(store.task_row(task_id(2)).wait().unwrap(), row);
    assert_eq!(events_of(store, 2), others);
    assert_eq!(remove(store, &[&[1]]), [removed(&[], &[])]);
    // Its id is free again, without any data of the former task.
    finished(store, 1);
    assert_eq!(store.messages(task_id(1)).wait().unwrap().len(), 2);
}

/// A reader that continues from a position misses nothing after the newest events are removed.
pub fn positions_are_never_reused(store: &SharedStore) {
    finished(store, 1);
    finished(store, 2);
    let last = store.last_position().wait().unwrap();
    let before = store.headers_after(JournalPosition(0), 100).wait().unwrap();
    remove(store, &[&[2]]);
    assert_eq!(store.last_position().wait().unwrap(), last);
    assert_eq!(store.headers_after(last, 100).wait().unwrap(), []);
    assert_eq!(
        store.headers_after(JournalPosition(0), 100).wait().unwrap(),
        before[..before.len() / 2]
    );
    begin(store, task_id(3));
    let after: Vec<_> = store
        .headers_after(last, 100)
        .wait()
        .unwrap()
        .iter()
        .map(|header| header.position)
        .collect();
    assert_eq!(after, [last.plus(1), last.plus(2)]);
}

/// A definition is removed with the last task that pins it.
pub fn pinned_definitions_are_kept(store: &SharedStore) {
    let digest = definition().digest;
    cancelled(store, 1, created("a"));
    cancelled(store, 2, created("b"));
    remove(store, &[&[1]]);
    assert!(store.definition(&digest).wait().unwrap().is_some());
    remove(store, &[&[2]]);
    assert_eq!(store.definition(&digest).wait().unwrap(), None);
    cancelled(store, 3, created("c"));
    assert!(store.definition(&digest).wait().unwrap().is_some());
}

/// Active tasks stay, and so do tasks whose subtasks, parents or forks stay.
pub fn referenced_tasks_are_not_removed(store: &SharedStore) {
    begin(store, task_id(1));
    assert_eq!(remove(store, &[&[1]]), [refused(1, RemovalBlocker::NotEnded(TaskStatus::Pending))]);
    cancelled(store, 2, created("top"));
    cancelled(store, 3, created_under(Some(task_id(2)), "part"));
    cancelled(store, 4, forked(task_id(2), 3));
    cancelled(store, 5, forked(task_id(4), 3));
    let answers = remove(store, &[&[3], &[2], &[2, 3], &[4]]);
    let expected = [
        refused(3, RemovalBlocker::Parent(task_id(2))),
        refused(2, RemovalBlocker::SubTask(task_id(3))),
        refused(2, RemovalBlocker::Fork(task_id(4))),
        refused(4, RemovalBlocker::Fork(task_id(5))),
    ];
    assert_eq!(answers, expected);
    assert_eq!(task_ids(store).len(), 5);
    // A chain is removed from its end, or as a whole.
    let answers = remove(store, &[&[5], &[2, 3, 4]]);
    assert_eq!(answers, [removed(&[5], &[]), removed(&[2, 3, 4], &[])]);
    assert_eq!(task_ids(store), [task_id(1)]);
}

/// A fork of a task that was removed meanwhile fails.
pub fn fork_needs_its_origin(store: &SharedStore) {
    cancelled(store, 1, created("a"));
    remove(store, &[&[1]]);
    let late = commit(task_id(2), 0, None, vec![forked(task_id(1), 3)]);
    let answer = store.commit(late).wait();
    assert!(matches!(answer, Err(CommitError::Illegal { .. })), "{answer:?}");
    let at = at(1);
    let import = |number, first| TaskImport {
        task: task_id(number),
        events: vec![(at, first)],
        definitions: vec![definition()],
    };
    let (origin, fork) = (import(1, created("a")), import(2, forked(task_id(1), 1)));
    let answer = store.import(vec![fork.clone(), origin.clone()]).wait();
    assert!(matches!(answer, Err(ImportError::Illegal { .. })), "{answer:?}");
    assert_eq!(task_ids(store), []);
    store.import(vec![origin, fork]).wait().unwrap();
    assert_eq!(task_ids(store), [task_id(2), task_id(1)]);
    store.import(vec![import(3, forked(task_id(2), 1))]).wait().unwrap();
}

/// A refused unit keeps all its rows; other units are removed.
pub fn refused_removal_unit_is_unchanged(store: &SharedStore) {
    finished(store, 1);
    begin(store, task_id(2));
    finished(store, 3);
    let answers = remove(store, &[&[1, 2], &[3]]);
    assert_eq!(answers[0], refused(2, RemovalBlocker::NotEnded(TaskStatus::Pending)));
    assert_eq!(answers[1], removed(&[3], &[3]));
    assert_eq!(task_ids(store), [task_id(2), task_id(1)]);
    assert_eq!(store.messages(task_id(1)).wait().unwrap().len(), 2);
    // The active task continues.
    run(store, task_id(2), 2);
    complete(store, task_id(2), 2);
    assert_eq!(remove(store, &[&[1, 2]]), [removed(&[1, 2], &[1, 2])]);
    assert_eq!(task_ids(store), []);
}
