//! Commits: the events, the ticket that reports durability, and the permit to block for it.

use std::cell::Cell;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::ThreadId;

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{Event, JournalPosition, OwnerEpoch, StreamId, StreamSequence};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::StoreError;

/// Events to append to one stream, all or none.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The stream.
    pub stream: StreamId,
    /// The sequence of the stream's newest event, as the caller knows it; 0 for a new stream.
    pub expected_sequence: StreamSequence,
    /// The epoch in which the caller owns the stream, if it commits as the owner.
    pub owner_epoch: Option<OwnerEpoch>,
    /// The time of the events.
    pub at: Timestamp,
    /// The events, at least one.
    pub events: Vec<Event>,
    /// Definitions that the events pin. The store ignores those that it has.
    pub definitions: Vec<PinnedDefinition>,
    /// The unmasked input of the task, stored beside the journal until the task ends.
    pub sealed_input: Option<String>,
}

impl Commit {
    /// A commit of events alone.
    pub fn new(
        stream: StreamId,
        expected_sequence: StreamSequence,
        owner_epoch: Option<OwnerEpoch>,
        at: Timestamp,
        events: Vec<Event>,
    ) -> Self {
        let (definitions, sealed_input) = (Vec::new(), None);
        Self { stream, expected_sequence, owner_epoch, at, events, definitions, sealed_input }
    }
}

/// A definition in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedDefinition {
    /// The digest of `json`.
    pub digest: Digest,
    /// The canonical form.
    pub json: Arc<str>,
}

/// The receipt of a durable commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitReceipt {
    /// The position of its first event; the others follow without a gap.
    pub first_position: JournalPosition,
    /// The sequence of its last event.
    pub last_sequence: StreamSequence,
}

/// The reason why a commit was refused. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The stream has moved on: load the new events and decide again.
    #[error("the stream is at {actual:?}, not at {expected:?}: someone else has changed it")]
    Conflict {
        /// The sequence that the caller expected.
        expected: StreamSequence,
        /// The sequence in the store.
        actual: StreamSequence,
    },
    /// Another process owns the task.
    #[error("the task changed hands: this process owned it in {expected:?}, now it is {actual:?}")]
    Fenced {
        /// The caller's epoch.
        expected: OwnerEpoch,
        /// The epoch in the store.
        actual: OwnerEpoch,
    },
    /// The events cannot follow the stream at any sequence.
    #[error("the events cannot follow on the stream: {reason}")]
    Illegal {
        /// The rule that they break.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The pending answer to a commit.
#[derive(Debug)]
pub struct CommitTicket(TicketState);

#[derive(Debug)]
enum TicketState {
    Answered(Option<Result<CommitReceipt, CommitError>>),
    Waiting(oneshot::Receiver<Result<CommitReceipt, CommitError>>),
}

impl CommitTicket {
    /// A ticket with its answer.
    pub fn answered(answer: Result<CommitReceipt, CommitError>) -> Self {
        Self(TicketState::Answered(Some(answer)))
    }

    pub(crate) fn waiting(receiver: oneshot::Receiver<Result<CommitReceipt, CommitError>>) -> Self {
        Self(TicketState::Waiting(receiver))
    }

    /// Blocks until the commit is durable or refused. Panics in asynchronous code, which awaits.
    pub fn wait(self) -> Result<CommitReceipt, CommitError> {
        match self.0 {
            TicketState::Answered(answer) => answer.unwrap_or(Err(StoreError::Closed.into())),
            TicketState::Waiting(receiver) => {
                receiver.blocking_recv().unwrap_or(Err(StoreError::Closed.into()))
            }
        }
    }
}

impl Future for CommitTicket {
    type Output = Result<CommitReceipt, CommitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            TicketState::Answered(answer) => {
                Poll::Ready(answer.take().unwrap_or(Err(StoreError::Closed.into())))
            }
            TicketState::Waiting(receiver) => Pin::new(receiver)
                .poll(context)
                .map(|answer| answer.unwrap_or(Err(StoreError::Closed.into()))),
        }
    }
}

thread_local! {
    static IS_CLAIMED: Cell<bool> = const { Cell::new(false) };
}

/// A thread reserved for one engine: nothing else on it has to go on during a commit.
///
/// Only the program's composition root can know that, so it claims the thread. A server, whose
/// requests share threads, never does.
#[derive(Debug)]
pub struct DedicatedThread {
    thread: ThreadId,
}

impl DedicatedThread {
    /// Claims the current thread. None if it is claimed already, or if it belongs to a
    /// multi-threaded Tokio runtime, whose tasks move between threads.
    pub fn claim() -> Option<Self> {
        let moves_tasks = Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() != RuntimeFlavor::CurrentThread);
        if moves_tasks || IS_CLAIMED.replace(true) {
            return None;
        }
        Some(Self { thread: std::thread::current().id() })
    }

    /// The permit to block, if this is the claimed thread.
    pub fn permit(&self) -> Option<BlockingPermit> {
        let is_here = std::thread::current().id() == self.thread;
        is_here.then_some(BlockingPermit { _not_send: PhantomData })
    }
}

impl Drop for DedicatedThread {
    fn drop(&mut self) {
        if std::thread::current().id() == self.thread {
            IS_CLAIMED.set(false);
        }
    }
}

/// Proof that the current thread may block. It is not `Send`, so a task cannot hold it across an
/// await.
#[derive(Debug)]
pub struct BlockingPermit {
    _not_send: PhantomData<*const ()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_claimed_once_and_permits_only_itself() {
        let thread = DedicatedThread::claim().unwrap();
        assert!(DedicatedThread::claim().is_none());
        assert!(thread.permit().is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(thread.permit().is_none())).join().unwrap();
        });
        drop(thread);
        assert!(DedicatedThread::claim().is_some());
    }

    #[test]
    fn threads_of_a_multi_threaded_runtime_cannot_be_claimed() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert!(runtime.block_on(async { DedicatedThread::claim() }).is_none());
        let claimed = runtime.spawn(async { DedicatedThread::claim().is_some() });
        assert!(!runtime.block_on(claimed).unwrap());
    }
}
