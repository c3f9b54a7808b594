//! The change feed: commits of all processes, in order.

use polity_model::event::{JournalPosition, StreamId, StreamSequence};

use crate::StoreFuture;

/// The location of an event, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHeader {
    /// The position in the journal.
    pub position: JournalPosition,
    /// The stream.
    pub stream: StreamId,
    /// The sequence in that stream.
    pub sequence: StreamSequence,
}

/// The stream of commits after a position, this process's own included.
///
/// A commit is delivered within 200 ms. SQLite is polled; a store with notifications may push.
pub trait ChangeFeed: Send {
    /// Waits for commits. Returns their events, oldest first, each exactly once.
    ///
    /// Dropping the future loses nothing: the next call returns the same events. After an error,
    /// the next call tries again.
    fn next(&mut self) -> StoreFuture<'_, Vec<EventHeader>>;
}
