//! Taking a task out of a store, with all that belongs to it.

use std::collections::BTreeSet;

use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{Import, PinnedDefinition, Store, StoreError};

use crate::commands::parts_of;
use crate::error::CliError;

/// How often a task is read that changes while it is read.
const TRIES_MAX: u32 = 50;

/// How many of the newest events are looked at to see whether a task has changed.
const HEADERS_MAX: u32 = 1000;

/// A task with its sub-agents' tasks, and the tasks that forks among them share a history with, all
/// as they were at one moment.
pub(crate) fn collect(store: &dyn Store, task: TaskId) -> Result<Vec<Import>, CliError> {
    for _ in 0..TRIES_MAX {
        let before = store.last_position()?;
        let tasks = family(store, task)?;
        let imports = tasks.iter().map(|task| take(store, *task)).collect::<Result<_, _>>()?;
        let newer = store.headers_after(before, HEADERS_MAX)?;
        let changed = newer.iter().any(|header| match &header.stream {
            StreamId::Task(id) => tasks.contains(id),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => false,
        });
        // A part may have come since the family was counted.
        if !changed && newer.len() < HEADERS_MAX as usize && family(store, task)? == tasks {
            return Ok(imports);
        }
    }
    Err(CliError::conflict(format!("task {task} changes faster than it can be read"))
        .hint("try again when there is less to do"))
}

fn family(store: &dyn Store, task: TaskId) -> Result<BTreeSet<TaskId>, StoreError> {
    let (mut family, mut waiting) = (BTreeSet::new(), vec![task]);
    while let Some(task) = waiting.pop() {
        let Some(row) = store.task_row(task)? else { continue };
        if family.insert(task) {
            waiting.extend(parts_of(store, task)?.iter().map(|part| part.id));
            waiting.extend(row.forked_from.iter().chain(&row.parent_task_id));
        }
    }
    Ok(family)
}

fn take(store: &dyn Store, task: TaskId) -> Result<Import, CliError> {
    let recorded = store.events(&StreamId::Task(task), StreamSequence::default())?;
    let mut definitions = Vec::new();
    if let Some(Event::TaskCreated(created)) = recorded.first().map(|first| &first.event) {
        for pin in &created.pins {
            let json = store.definition(&pin.digest)?.ok_or_else(|| {
                CliError::not_found(format!("what task {task} pinned of {} is lost", pin.name))
            })?;
            definitions.push(PinnedDefinition { digest: pin.digest, json: json.into() });
        }
    }
    let events = recorded.into_iter().map(|recorded| (recorded.at, recorded.event)).collect();
    Ok(Import { task, events, definitions })
}

#[cfg(test)]
mod tests {
    use polity_store::MemoryStore;
    use polity_testkit::lives::{
        claimed, commit, created, created_under, definition, forked, instance_id, task_id,
    };

    use super::*;
    use crate::archive::Stage;

    #[test]
    fn a_fork_brings_all_that_it_shares_a_history_with_and_no_more() {
        let store = MemoryStore::new();
        // 2 is a part of 1, 3 a fork of 1, and 4 of that part; 5 has nothing to do with them.
        for (number, first) in [
            (1, created("top")),
            (2, created_under(Some(task_id(1)), "part")),
            (3, forked(task_id(1), 2)),
            (4, forked(task_id(2), 2)),
            (5, created("other")),
        ] {
            let mut begun =
                commit(task_id(number), 0, Some(1), vec![first, claimed(instance_id(1), 1)]);
            begun.definitions.push(definition());
            store.commit(begun).wait().unwrap();
        }
        for (asked_for, expected) in
            [(1, [1, 2].as_slice()), (3, &[1, 2, 3]), (4, &[1, 2, 4]), (5, &[5])]
        {
            let stage = Stage::of(collect(&store, task_id(asked_for)).unwrap()).unwrap();
            let ids: Vec<_> = stage.imports().iter().map(|import| import.task).collect();
            let expected: Vec<_> = expected.iter().map(|number| task_id(*number)).collect();
            assert_eq!(ids, expected);
            assert!(stage.imports().iter().all(|import| import.definitions == [definition()]));
        }
    }
}
