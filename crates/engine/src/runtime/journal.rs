//! The journal as the runtime uses it: commits events, applies them and publishes them.

use std::sync::Arc;

use jiff::Timestamp;
use polity_model::event::{Event, OwnerEpoch, RecordedEvent};
use polity_model::ids::TaskId;
use polity_store::{Commit, CommitError, DedicatedThread, Store, StoreError};
use tokio::sync::broadcast;

use super::{EngineError, LiveEvent};
use crate::state::TaskState;

/// The number of events that a slow subscriber may fall behind before it must read the journal.
const LIVE_EVENTS_MAX: usize = 1024;

/// The way in which a commit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitMode {
    /// Batched with the commits of others, while this thread goes on.
    Grouped,
    /// On this thread, if it is dedicated to the runtime; grouped otherwise.
    Inline,
}

/// The store, with the subscribers of this process.
pub(super) struct TaskJournal {
    store: Arc<dyn Store>,
    live: broadcast::Sender<LiveEvent>,
    thread: Option<DedicatedThread>,
}

impl TaskJournal {
    /// A journal that publishes to subscribers.
    pub(super) fn new(store: Arc<dyn Store>, thread: Option<DedicatedThread>) -> Self {
        Self { store, live: broadcast::Sender::new(LIVE_EVENTS_MAX), thread }
    }

    /// A journal outside of any runtime, without subscribers.
    pub(super) fn detached(store: &Arc<dyn Store>) -> Self {
        Self { store: Arc::clone(store), live: broadcast::Sender::new(1), thread: None }
    }

    /// Subscribes to events from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<LiveEvent> {
        self.live.subscribe()
    }

    /// Commits events in the name of the task's owner, and applies them once they are durable.
    pub(super) async fn commit_as_owner(
        &self,
        state: &mut TaskState,
        at: Timestamp,
        events: Vec<Event>,
        mode: CommitMode,
    ) -> Result<(), EngineError> {
        // A claim is committed in the epoch that it opens.
        let opened = events.iter().find_map(Event::opens_epoch);
        let epoch = opened.unwrap_or(state.epoch());
        self.commit_and_apply(state, Some(epoch), at, events, mode).await
    }

    /// Commits events without checking the task's owner, and applies them.
    pub(super) async fn commit_unfenced(
        &self,
        state: &mut TaskState,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Result<(), EngineError> {
        self.commit_and_apply(state, None, at, events, CommitMode::Grouped).await
    }

    async fn commit_and_apply(
        &self,
        state: &mut TaskState,
        epoch: Option<OwnerEpoch>,
        at: Timestamp,
        events: Vec<Event>,
        mode: CommitMode,
    ) -> Result<(), EngineError> {
        let commit = Commit::new(state.stream(), state.sequence(), epoch, at, events);
        for recorded in self.commit(commit, mode).await? {
            state.apply(recorded).map_err(|broken| EngineError::broken(state.id(), &broken))?;
        }
        Ok(())
    }

    /// Makes events durable, and only then publishes them.
    pub(super) async fn commit(
        &self,
        commit: Commit,
        mode: CommitMode,
    ) -> Result<Vec<RecordedEvent>, CommitError> {
        let (stream, at) = (commit.stream.clone(), commit.at);
        let (before, events) = (commit.expected_sequence, commit.events.clone());
        let permit = match (mode, &self.thread) {
            (CommitMode::Inline, Some(thread)) => thread.permit(),
            (CommitMode::Inline | CommitMode::Grouped, _) => None,
        };
        let ticket = match permit {
            Some(permit) => self.store.commit_inline(commit, permit),
            None => self.store.commit(commit),
        };
        let receipt = ticket.await?;
        let recorded: Vec<RecordedEvent> = (0..)
            .zip(events)
            .map(|(index, event)| RecordedEvent {
                position: receipt.first_position.plus(index),
                stream: stream.clone(),
                sequence: before.plus(index + 1),
                at,
                event,
            })
            .collect();
        self.publish(&recorded);
        Ok(recorded)
    }

    /// Applies and publishes the events that others have committed to the task.
    pub(super) async fn catch_up(&self, state: &mut TaskState) -> Result<(), EngineError> {
        let news = self.events_after(state).await?;
        self.publish(&news);
        for recorded in news {
            state.apply(recorded).map_err(|broken| EngineError::broken(state.id(), &broken))?;
        }
        Ok(())
    }

    /// The events of a task that `state` does not have yet.
    pub(super) async fn events_after(
        &self,
        state: &TaskState,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.store.events(&state.stream(), state.sequence()).await
    }

    /// Publishes text that is not yet an event.
    pub(super) fn publish_text(&self, task: TaskId, piece: &str) {
        if self.live.receiver_count() > 0 {
            // Fails only if the last subscriber has just left.
            let _ = self.live.send(LiveEvent::Text { task, piece: piece.into() });
        }
    }

    fn publish(&self, recorded: &[RecordedEvent]) {
        if self.live.receiver_count() > 0 {
            for event in recorded {
                // Fails only if the last subscriber has just left.
                let _ = self.live.send(LiveEvent::Event(Arc::new(event.clone())));
            }
        }
    }
}
