//! Cases of the items of maps.

use polity_model::event::{Event, TaskCreated, ToolChange};
use polity_model::ids::ToolCallId;

use super::{SharedStore, begin, row, run, write};
use crate::task_fixtures::{answered, claimed, creation, instance_id, task_id};

/// The answer to the call of an item is no message of the conversation.
pub fn answers_of_items_are_no_messages(store: &SharedStore) {
    begin(store, task_id(1));
    run(store, task_id(1), 1);
    let before = row(store, 1);
    let change = ToolChange::Answer {
        ordinal: None,
        content: "done".to_owned(),
        structured: None,
        is_error: false,
        duration_ms: 1,
        unsettled: None,
        item: Some(0),
    };
    let call_id = ToolCallId::from_random_bytes([1; 16]);
    write(store, 1, 6, Some(1), vec![Event::ToolChanged { call_id, change }, answered("x")]);
    let row = row(store, 1);
    assert_eq!(row.message_count, before.message_count + 1);
    assert_eq!(store.messages(task_id(1)).wait().unwrap().last().unwrap().content(), "x");
}

/// The tasks of items, and those below them, are counted apart.
pub fn tasks_of_items_are_counted_apart(store: &SharedStore) {
    begin(store, task_id(1));
    for (number, parent, map_item) in [(2, 1, Some(0)), (3, 1, Some(1)), (4, 3, None), (5, 1, None)]
    {
        let parent_task_id = Some(task_id(parent));
        let created = TaskCreated { parent_task_id, map_item, ..creation("a part") };
        let first = Event::TaskCreated(created);
        write(store, number, 0, Some(1), vec![first, claimed(instance_id(1), 1)]);
        assert_eq!(row(store, number).map_item, map_item);
    }
    for (number, tasks, of_items) in [(1, 5, 3), (2, 1, 0), (3, 2, 0), (4, 1, 0)] {
        let tree = store.task_tree(task_id(number)).wait().unwrap();
        assert_eq!((tree.task_count, tree.item_task_count), (tasks, of_items), "{number}");
    }
}
