//! Cases of tasks imported from another store.

use polity_model::event::{Event, ExecutionChange, JournalPosition, StreamSequence};
use polity_model::machine::task::TaskStatus;
use polity_store::{ImportError, TaskImport};

use super::{SharedStore, events_of, row, task_ids, write};
use crate::task_fixtures::{
    at, changed, claimed, created, created_under, definition, ended_well, execution_id,
    execution_started, instance_id, task_id,
};

/// A completed task with one second between events.
fn completed_task(number: u64, first: Event) -> TaskImport {
    let execution = execution_id(number);
    let mut events = vec![
        first,
        claimed(instance_id(1), 1),
        Event::TaskStarted,
        execution_started(execution),
        changed(execution, ExecutionChange::RUN),
        Event::ModelCalled { iteration: 1, checkpoint: None },
    ];
    events.extend(ended_well(execution, "Hello, Ada."));
    TaskImport {
        task: task_id(number),
        events: (100..).map(at).zip(events).collect(),
        definitions: vec![definition()],
    }
}

/// Events keep their sequence and time, and the rows equal those of the other store.
pub fn imported_tasks_are_unchanged(store: &SharedStore) {
    write(store, 9, 0, None, vec![created("own")]);
    let (top, part) = (
        completed_task(1, created("Ada")),
        completed_task(2, created_under(Some(task_id(1)), "a part")),
    );
    store.import(vec![top.clone(), part]).wait().unwrap();
    let events = events_of(store, 1);
    assert_eq!(events.len(), top.events.len());
    for (index, (recorded, (at, event))) in events.iter().zip(&top.events).enumerate() {
        assert_eq!(recorded.sequence, StreamSequence(index as u64 + 1));
        assert_eq!(recorded.position, JournalPosition(index as u64 + 2));
        assert_eq!((&recorded.at, &recorded.event), (at, event));
    }
    let row = row(store, 1);
    assert_eq!(row.status, TaskStatus::Completed);
    assert_eq!((row.created_at, row.started_at), (at(100), Some(at(102))));
    assert_eq!(row.completed_at, Some(at(111)));
    assert_eq!(store.task(&row).wait().unwrap().result.as_deref(), Some("Hello, Ada."));
    assert_eq!(store.messages(task_id(1)).wait().unwrap().len(), 2);
    assert_eq!(store.checkpoints(task_id(1)).wait().unwrap()[0].created_at, at(110));
    assert_eq!(store.executions(task_id(1)).wait().unwrap().len(), 1);
    assert_eq!(
        store.definition(&definition().digest).wait().unwrap(),
        Some(definition().json.to_string())
    );
    assert_eq!(store.task_tree(task_id(1)).wait().unwrap().task_count, 2);
    assert_eq!(task_ids(store), [task_id(2), task_id(1), task_id(9)]);
    // Imported tasks add no spending.
    assert_eq!(store.spending().wait().unwrap(), []);
    assert_eq!(store.last_position().wait().unwrap(), JournalPosition(25));
}

/// One invalid task fails the whole import.
pub fn import_is_atomic(store: &SharedStore) {
    let valid = || completed_task(1, created("Ada"));
    let mut broken = completed_task(2, created("Ben"));
    broken.events.remove(4);
    let refused = store.import(vec![valid(), broken]).wait().unwrap_err();
    let ImportError::Illegal { task, sequence, .. } = refused else { panic!("{refused}") };
    assert_eq!((task, sequence), (task_id(2), StreamSequence(7)));
    let mut empty = completed_task(2, created("Ben"));
    empty.events.clear();
    let refused = store.import(vec![valid(), empty]).wait().unwrap_err();
    assert!(matches!(refused, ImportError::Illegal { .. }), "{refused}");
    assert_eq!(
        (task_ids(store), store.last_position().wait().unwrap()),
        (vec![], JournalPosition(0))
    );
    assert_eq!(store.definition(&definition().digest).wait().unwrap(), None);

    store.import(vec![valid()]).wait().unwrap();
    let again = store.import(vec![completed_task(2, created("Ben")), valid()]).wait();
    assert_eq!(again, Err(ImportError::Exists { task: task_id(1) }));
    assert_eq!(task_ids(store), [task_id(1)]);
    // An execution belongs to one task.
    let mut conflicting = completed_task(1, created("Eve"));
    conflicting.task = task_id(3);
    assert!(matches!(store.import(vec![conflicting]).wait(), Err(ImportError::Illegal { .. })));
}
