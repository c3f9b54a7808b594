//! Commits: what goes in, and how the caller learns that it is durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{Event, JournalPosition, OwnerEpoch, StreamId, StreamSequence};
use tokio::sync::oneshot;

use crate::StoreError;

/// Events to be appended to one stream, all or none.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The stream.
    pub stream: StreamId,
    /// The sequence of the stream's newest event, as the caller knows it; 0 for a new stream.
    pub expected_sequence: StreamSequence,
    /// The epoch in which the caller owns the stream, if it acts as its owner.
    pub owner_epoch: Option<OwnerEpoch>,
    /// When the events happened.
    pub at: Timestamp,
    /// The events, at least one.
    pub events: Vec<Event>,
    /// Definitions that the events pin. Those that the store has already are kept as they are.
    pub definitions: Vec<PinnedDefinition>,
    /// What must not be seen in the journal. It is kept beside it until the task ends.
    pub sealed_input: Option<String>,
}

/// A definition in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedDefinition {
    /// The digest of `json`.
    pub digest: Digest,
    /// The canonical form.
    pub json: Arc<str>,
}

/// A commit that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The position of its first event; the others follow without a gap.
    pub first_position: JournalPosition,
    /// The sequence of its last event.
    pub last_sequence: StreamSequence,
}

/// Why a commit was refused. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The stream has moved on: load what is new and decide again.
    #[error("the stream is at {actual:?}, not at {expected:?}: someone else has changed it")]
    Conflict {
        /// What the caller expected.
        expected: StreamSequence,
        /// What is there.
        actual: StreamSequence,
    },
    /// The task belongs to someone else by now.
    #[error("the task changed hands: this process owned it in {expected:?}, now it is {actual:?}")]
    Fenced {
        /// The caller's epoch.
        expected: OwnerEpoch,
        /// The epoch that is there.
        actual: OwnerEpoch,
    },
    /// The events cannot follow on what is there, whatever the sequence.
    #[error("the events cannot follow on the stream: {reason}")]
    Illegal {
        /// Why not.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The answer to a commit, once there is one.
#[derive(Debug)]
pub struct CommitTicket(Ticket);

#[derive(Debug)]
enum Ticket {
    Answered(Option<Result<Committed, CommitError>>),
    Waiting(oneshot::Receiver<Result<Committed, CommitError>>),
}

impl CommitTicket {
    /// A ticket that is answered already.
    pub fn answered(answer: Result<Committed, CommitError>) -> Self {
        Self(Ticket::Answered(Some(answer)))
    }

    pub(crate) fn waiting(receiver: oneshot::Receiver<Result<Committed, CommitError>>) -> Self {
        Self(Ticket::Waiting(receiver))
    }

    /// Blocks until the commit is durable or refused. Not for asynchronous code, which awaits.
    pub fn wait(self) -> Result<Committed, CommitError> {
        match self.0 {
            Ticket::Answered(answer) => answer.unwrap_or(Err(StoreError::Closed.into())),
            Ticket::Waiting(receiver) => {
                receiver.blocking_recv().unwrap_or(Err(StoreError::Closed.into()))
            }
        }
    }
}

impl Future for CommitTicket {
    type Output = Result<Committed, CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ticket::Answered(answer) => {
                Poll::Ready(answer.take().unwrap_or(Err(StoreError::Closed.into())))
            }
            Ticket::Waiting(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|answer| answer.unwrap_or(Err(StoreError::Closed.into()))),
        }
    }
}
