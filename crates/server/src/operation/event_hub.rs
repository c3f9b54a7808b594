//! The event hub: delivers committed events of all processes to listeners.
//!
//! One reader follows the journal and encodes each event once. Listeners read what happened before
//! they came from the store, and the rest from the hub. A listener that falls behind is told to
//! resume; it never slows the reader down.

use std::sync::Arc;
use std::time::Duration;

use polity_model::event::{JournalPosition, RecordedEvent, StreamId};
use polity_model::ids::TaskId;
use polity_store::{Store, StoreError};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

/// The most events that a listener may fall behind.
const BACKLOG_EVENTS_MAX: usize = 4096;

/// The most events read at once.
pub(crate) const BATCH_EVENTS: u32 = 500;

/// The time after which a failed read is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An event with its text for listeners.
#[derive(Debug)]
pub(crate) struct JournalFrame {
    /// The event.
    pub(crate) recorded: RecordedEvent,
    /// Its JSON.
    pub(crate) text: String,
}

impl JournalFrame {
    pub(crate) fn new(recorded: RecordedEvent) -> Self {
        let text = event_json(&recorded).to_string();
        Self { recorded, text }
    }

    /// The task of the event.
    pub(crate) fn task(&self) -> Option<TaskId> {
        match self.recorded.stream {
            StreamId::Task(task) => Some(task),
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        }
    }
}

/// The JSON of an event, as clients see it.
fn event_json(recorded: &RecordedEvent) -> Value {
    let (kind, id) = match &recorded.stream {
        StreamId::Task(id) => ("task", id.to_string()),
        StreamId::Session(id) => ("session", id.to_string()),
        StreamId::Schedule(name) => ("schedule", name.to_string()),
        StreamId::Agent(name) => ("agent", name.to_string()),
    };
    json!({
        "position": recorded.position.0,
        "stream": {"kind": kind, "id": id},
        "sequence": recorded.sequence.0,
        "at": recorded.at,
        "event": recorded.event,
    })
}

/// Delivers events to listeners.
pub(crate) struct EventHub {
    sender: broadcast::Sender<Arc<JournalFrame>>,
    follower: JoinHandle<()>,
}

impl EventHub {
    /// Starts to follow the journal. Must be called within a Tokio runtime.
    pub(crate) async fn start(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let after = store.last_position().await?;
        let (sender, _) = broadcast::channel(BACKLOG_EVENTS_MAX);
        let follower = tokio::spawn(follow(store, after, sender.clone()));
        Ok(Self { sender, follower })
    }

    /// Listens to events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<JournalFrame>> {
        self.sender.subscribe()
    }

    /// The number of listeners.
    pub(crate) fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }
}

impl Drop for EventHub {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

async fn follow(
    store: Arc<dyn Store>,
    mut after: JournalPosition,
    sender: broadcast::Sender<Arc<JournalFrame>>,
) {
    let mut changes = store.changes(after);
    loop {
        if let Err(error) = deliver(&*store, &mut after, &sender).await {
            tracing::error!(%error, "cannot follow the journal");
            tokio::time::sleep(RETRY_DELAY).await;
            // What was committed before the failure brings no further change.
            continue;
        }
        if let Err(error) = changes.next().await {
            tracing::error!(%error, "cannot follow the journal");
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }
}

/// Delivers all events after a position.
async fn deliver(
    store: &dyn Store,
    after: &mut JournalPosition,
    sender: &broadcast::Sender<Arc<JournalFrame>>,
) -> Result<(), StoreError> {
    loop {
        let events = store.events_after(*after, BATCH_EVENTS).await?;
        let is_last = events.len() < BATCH_EVENTS as usize;
        for recorded in events {
            *after = recorded.position;
            // Without listeners there is nothing to deliver.
            let _ = sender.send(Arc::new(JournalFrame::new(recorded)));
        }
        if is_last {
            return Ok(());
        }
    }
}
