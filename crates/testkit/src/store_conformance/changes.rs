//! Cases of the change feed.

use std::future::Future;
use std::time::Duration;

use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence};
use polity_store::{ChangeFeed, EventHeader};

use super::{SharedStore, begin};
use crate::task_fixtures::{commit, created, task_id};

/// The time within which a commit must be delivered.
const DELIVERY_TIME_MAX: Duration = Duration::from_millis(200);

/// The slack of a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(future)
}

async fn next(feed: &mut dyn ChangeFeed) -> Vec<EventHeader> {
    tokio::time::timeout(DELIVERY_TIME_MAX + SLACK, feed.next()).await.unwrap().unwrap()
}

/// The feed delivers every commit after its position once, in order.
pub fn change_feed_delivers_each_commit_once(store: &SharedStore) {
    begin(store, task_id(1));
    block_on(async {
        let mut feed = store.changes(JournalPosition(2));
        let mut positions = Vec::new();
        for number in 2..=4 {
            let events = vec![created("later")];
            store.commit(commit(task_id(number), 0, None, events)).await.unwrap();
            if number != 3 {
                let headers = next(&mut *feed).await;
                positions.extend(headers.iter().map(|header| header.position.0));
            }
        }
        while positions.len() < 3 {
            positions.extend(next(&mut *feed).await.iter().map(|header| header.position.0));
        }
        assert_eq!(positions, [3, 4, 5]);
    });
}

/// A waiting feed delivers a commit of another thread with its stream and sequence.
pub fn change_feed_wakes_for_a_commit(store: &SharedStore) {
    begin(store, task_id(1));
    block_on(async {
        let mut feed = store.changes(JournalPosition(2));
        let idle = tokio::time::timeout(2 * DELIVERY_TIME_MAX, feed.next()).await;
        assert!(idle.is_err(), "nothing was committed");
        let other = std::sync::Arc::clone(store);
        let committer = std::thread::spawn(move || {
            other.commit(commit(task_id(1), 2, None, vec![Event::CancelRequested])).wait().unwrap();
        });
        let headers = next(&mut *feed).await;
        committer.join().unwrap();
        let expected = EventHeader {
            position: JournalPosition(3),
            stream: StreamId::Task(task_id(1)),
            sequence: StreamSequence(3),
        };
        assert_eq!(headers, [expected]);
    });
}

/// A read in asynchronous code gives the same answer as one on a plain thread.
pub fn reads_work_in_asynchronous_code(store: &SharedStore) {
    begin(store, task_id(1));
    let stream = StreamId::Task(task_id(1));
    let plain = store.events(&stream, StreamSequence(0)).wait().unwrap();
    let row = store.task_row(task_id(1)).wait().unwrap();
    block_on(async {
        assert_eq!(store.events(&stream, StreamSequence(0)).await.unwrap(), plain);
        assert_eq!(store.task_row(task_id(1)).await.unwrap(), row);
        assert_eq!(store.remove(vec![vec![task_id(9)]]).await.unwrap().len(), 1);
    });
}
