//! Checkpoints between the turns of a model.

use polity_model::event::{Event, TurnCheckpoint};
use polity_model::ids::CheckpointId;
use polity_store::CommitError;

use super::{SharedStore, begin, run};
use crate::task_fixtures::{answered, commit, task_id};

/// A model call of a later turn takes a checkpoint, in the order of the numbers.
pub fn turns_take_checkpoints(store: &SharedStore) {
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    let called = |sequence: u32| {
        let checkpoint_id = CheckpointId::from_random_bytes([7; 16]);
        let checkpoint = Some(TurnCheckpoint { checkpoint_id, sequence });
        Event::ModelCalled { iteration: 2, checkpoint }
    };
    let refused =
        store.commit(commit(task_id(1), 6, Some(1), vec![answered("a"), called(1)])).wait();
    assert!(matches!(refused, Err(CommitError::Illegal { .. })), "{refused:?}");
    store.commit(commit(task_id(1), 6, Some(1), vec![answered("a"), called(0)])).wait().unwrap();
    let rows = store.checkpoints(task_id(1)).wait().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].sequence, rows[0].message_count), (0, 2));
    assert_eq!((rows[0].node.as_str(), rows[0].awaiting_human), ("greeter", false));
    let row = store.task_row(task_id(1)).wait().unwrap().unwrap();
    assert_eq!(row.checkpoint_count, 1);
}
