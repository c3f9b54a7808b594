//! Cases of executions and sealed inputs.

use jiff::SignedDuration;
use polity_model::digest::Digest;
use polity_model::event::{Event, ExecutionChange};
use polity_model::remote::RemoteTask;
use polity_store::{Commit, ExecutionFilter, TaskFilter};

use super::{SharedStore, row, write};
use crate::task_fixtures::{changed, claimed, commit, created, execution_id, instance_id, task_id};

/// Pool queries return exactly the executions that wait for a slot or hold one.
pub fn executions_are_found_by_pool_and_agent(store: &SharedStore) {
    for number in [3, 1, 2] {
        let events = vec![created("a"), claimed(instance_id(1), 1), queue(number)];
        write(store, number, 0, Some(1), events);
    }
    let rows = |filter: ExecutionFilter| store.execution_rows(&filter).wait().unwrap();
    let open = || {
        let pool = Some("folder /work".to_owned());
        let filter = ExecutionFilter { pool, open_only: true, ..ExecutionFilter::default() };
        rows(filter).into_iter().map(|row| row.execution.id).collect::<Vec<_>>()
    };
    assert_eq!(open(), [2, 1, 3].map(execution_id));
    let agent = "coder".parse().unwrap();
    let start = ExecutionChange::Start { agent, max_retries: 3 };
    let begins = vec![
        Event::TaskStarted,
        changed(execution_id(1), start),
        changed(execution_id(1), ExecutionChange::Run { process_id: Some(7), remote: None }),
    ];
    write(store, 1, 3, Some(1), begins);
    let of_one = store.execution(execution_id(1)).wait().unwrap().unwrap();
    assert_eq!((of_one.process_id, of_one.is_active()), (Some(7), true));
    assert_eq!(rows(ExecutionFilter { limit: Some(1), ..ExecutionFilter::default() }).len(), 1);
    // Ended and unstarted executions are in no pool.
    let over = [ExecutionChange::Complete, ExecutionChange::CleanUp, ExecutionChange::Finish];
    let over = over.into_iter().map(|change| changed(execution_id(1), change)).collect();
    write(store, 1, 6, Some(1), over);
    write(store, 2, 3, Some(1), vec![Event::TaskCancelled]);
    assert_eq!(open(), [execution_id(3)]);
    let of_agent = |agent: &str| {
        rows(ExecutionFilter { agent: Some(agent.into()), ..ExecutionFilter::default() }).len()
    };
    assert_eq!((of_agent("coder"), of_agent("greeter")), (3, 0));
    let prefix = &execution_id(3).to_string()[..36];
    assert_eq!(store.execution_ids_by_prefix(prefix, 5).wait().unwrap(), [execution_id(3)]);
    assert_eq!(store.execution_ids_by_prefix("no id", 5).wait().unwrap(), []);
}

/// A sealed input is readable until its task ends.
pub fn sealed_input_is_removed_when_its_task_ends(store: &SharedStore) {
    let sealed_input = Some("s3cret".to_owned());
    let events = vec![created("a"), claimed(instance_id(1), 1)];
    let first = Commit { sealed_input, ..commit(task_id(1), 0, Some(1), events) };
    store.commit(first).wait().unwrap();
    assert_eq!(store.sealed_input(task_id(1)).wait().unwrap().as_deref(), Some("s3cret"));
    assert_eq!(store.sealed_input(task_id(2)).wait().unwrap(), None);
    write(store, 1, 2, Some(1), vec![Event::TaskCancelled]);
    assert_eq!(store.sealed_input(task_id(1)).wait().unwrap(), None);
}

/// A remote task may be cancelled after its own task has ended.
pub fn remote_cancel_is_recorded_after_the_task_ends(store: &SharedStore) {
    let task = RemoteTask { task_id: "t-1".to_owned(), context_id: None };
    let start = ExecutionChange::Start { agent: "painter".parse().unwrap(), max_retries: 3 };
    let run = ExecutionChange::Run { process_id: None, remote: Some(task.clone()) };
    let over = [ExecutionChange::Cancel, ExecutionChange::CleanUp, ExecutionChange::Finish];
    let changes = [start, run].into_iter().chain(over);
    let changes = changes.map(|change| changed(execution_id(1), change));
    let events = [created("a"), claimed(instance_id(1), 1), Event::TaskStarted];
    let events = events.into_iter().chain(changes).chain([Event::TaskCancelled]).collect();
    write(store, 1, 0, Some(1), events);
    let ended = row(store, 1);
    let end = ExecutionChange::EndRemote { task: task.clone(), refusal: None };
    write(store, 1, 9, None, vec![changed(execution_id(1), end)]);
    let row = row(store, 1);
    assert_eq!((row.status, row.completed_at), (ended.status, ended.completed_at));
    assert_eq!(store.execution(execution_id(1)).wait().unwrap().unwrap().remote, Some(task));
}

/// Duplicates are found by their key, and with the run that they share.
pub fn duplicate_tasks_are_found(store: &SharedStore) {
    let request = Digest::of(b"the same");
    let begins = |asks: Option<Digest>| {
        let mut created = created("a");
        if let Event::TaskCreated(created) = &mut created {
            created.request = asks;
        }
        vec![created, claimed(instance_id(1), 1), Event::TaskStarted]
    };
    for (number, asks) in [(1, Some(request)), (2, None), (3, Some(request))] {
        store.commit(commit(task_id(number), 0, Some(1), begins(asks))).wait().unwrap();
    }
    let found = || {
        let filter = TaskFilter { dedup_key: Some(request), ..TaskFilter::default() };
        let rows = store.task_rows(&filter).wait().unwrap();
        rows.iter().map(|row| (row.id, row.shared_with)).collect::<Vec<_>>()
    };
    assert_eq!(found(), [(task_id(3), None), (task_id(1), None)]);
    let made = row(store, 1).created_at;
    for (since, expected) in [(made, 2), (made + SignedDuration::from_secs(1), 0)] {
        let (request, created_since) = (Some(request), Some(since));
        let filter = TaskFilter { dedup_key: request, created_since, ..TaskFilter::default() };
        assert_eq!(store.task_rows(&filter).wait().unwrap().len(), expected);
    }
    write(store, 3, 3, Some(1), vec![Event::RunShared { with: task_id(1) }]);
    assert_eq!(found()[0], (task_id(3), Some(task_id(1))));
    let row = row(store, 3);
    assert_eq!(store.task(&row).wait().unwrap().shared_with, Some(task_id(1)));
    // It runs on its own after all.
    write(store, 3, 4, Some(1), vec![queue(3)]);
    assert_eq!(found()[0], (task_id(3), None));
}

/// An execution that joins the queue.
fn queue(number: u64) -> Event {
    let (agent, pool) = ("coder".parse().unwrap(), "folder /work".to_owned());
    let change = ExecutionChange::Queue { agent, max_retries: 3, pool, timeout_seconds: 300 };
    changed(execution_id(number), change)
}
