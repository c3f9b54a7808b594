//! The desk: who is at work, and whose turn is next.
//!
//! A task that waits for its turn is a row of the store. Kept here is its id, for whoever holds its
//! handle. Of the first that wait, which have just been written or read, the state is kept too, so
//! that it need not be read again.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::event::StreamSequence;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use tokio::sync::{mpsc, oneshot};

use super::load::{self, Loaded};
use super::worker::Worker;
use super::{EngineError, Outcome, Shared, TaskHandle};

/// What a worker is told while it waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    /// Someone in this process wants the task to end.
    Cancel,
    /// The task's journal has reached this point; if the worker did not write it, others did.
    Changed(StreamSequence),
}

pub(super) struct Desk {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) closed: bool,
    pub(super) workers: HashMap<TaskId, AtWork>,
    /// How many of the workers take up a place.
    places_taken: usize,
    /// Who waits for a free place, the first one first.
    queue: VecDeque<TaskId>,
    /// The state of some who wait, no more of them than there are places.
    at_hand: HashMap<TaskId, Loaded>,
    /// Left with an error, and not let go of yet. They are not tried again here, where they would
    /// only fail again, at once and for ever.
    /// Counted is how often letting go was tried.
    pub(super) given_up: HashMap<TaskId, u32>,
    /// Whom to tell when a task is left alone.
    handles: HashMap<TaskId, Vec<oneshot::Sender<Outcome>>>,
}

/// A task whose turn it is.
struct Turn {
    id: TaskId,
    loaded: Option<Loaded>,
    signals: mpsc::UnboundedReceiver<Signal>,
}

/// A worker, and those who waited for its task when it began.
pub(super) struct AtWork {
    /// Whether its parent waits for it. Such a task does not take up a place of its own.
    is_session: bool,
    signals: mpsc::UnboundedSender<Signal>,
    handles: Vec<oneshot::Sender<Outcome>>,
}

impl Desk {
    pub(super) fn new(limit: NonZeroU32) -> Self {
        Self { limit: limit.get() as usize, inner: Mutex::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change below is a single step, so a panic elsewhere leaves the desk whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anyone is at work.
    pub(super) fn has_workers(&self) -> bool {
        !self.inner().workers.is_empty()
    }

    /// Whether a worker is the only one, and no one waits for it to be done.
    pub(super) fn has_one_worker(&self) -> bool {
        let inner = self.inner();
        inner.workers.len() == 1 && inner.queue.is_empty()
    }

    /// Tells the task's worker to end it. Says whether there is one.
    pub(super) fn cancel(&self, id: TaskId) -> bool {
        self.signal(id, Signal::Cancel)
    }

    pub(super) fn signal(&self, id: TaskId, signal: Signal) -> bool {
        self.inner().workers.get(&id).is_some_and(|worker| worker.signals.send(signal).is_ok())
    }

    /// Ends a task that is worked on here, and says when that is done.
    pub(super) fn end(&self, id: TaskId) -> Option<oneshot::Receiver<Outcome>> {
        let (sender, done) = oneshot::channel();
        let mut inner = self.inner();
        let worker = inner.workers.get_mut(&id)?;
        worker.signals.send(Signal::Cancel).ok()?;
        worker.handles.push(sender);
        Some(done)
    }

    /// Lets go of all workers: they leave their tasks as they are.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.workers.clear();
        inner.places_taken = 0;
        inner.handles.clear();
        inner.queue.clear();
        inner.at_hand.clear();
    }

    /// Whether someone in this process waits for the task, and no worker is on it.
    fn is_waiting(&self, id: TaskId) -> bool {
        let inner = self.inner();
        !inner.workers.contains_key(&id) && inner.handles.contains_key(&id)
    }

    /// A place for the task whatever the limit: for one that is only to be ended.
    fn take_extra_place(&self, id: TaskId) -> Option<mpsc::UnboundedReceiver<Signal>> {
        let mut inner = self.inner();
        inner.leave_queue(id);
        inner.take_place(id, true)
    }

    /// A place for the one who has waited longest, if there is one free.
    fn next_turn(&self) -> Option<Turn> {
        let mut inner = self.inner();
        if inner.places_taken >= self.limit {
            return None;
        }
        // One who was adopted while its last worker is still about to leave waits for that.
        let next = inner.queue.iter().position(|id| !inner.workers.contains_key(id))?;
        let id = inner.queue.remove(next)?;
        let loaded = inner.at_hand.remove(&id);
        let signals = inner.take_place(id, false)?;
        Some(Turn { id, loaded, signals })
    }
}

impl Inner {
    fn take_place(
        &mut self,
        id: TaskId,
        is_session: bool,
    ) -> Option<mpsc::UnboundedReceiver<Signal>> {
        if self.closed || self.workers.contains_key(&id) {
            return None;
        }
        let (signals, receiver) = mpsc::unbounded_channel();
        let handles = self.handles.remove(&id).unwrap_or_default();
        self.workers.insert(id, AtWork { is_session, signals, handles });
        self.places_taken += usize::from(!is_session);
        Some(receiver)
    }

    fn leave_place(&mut self, id: TaskId) -> Vec<oneshot::Sender<Outcome>> {
        let Some(worker) = self.workers.remove(&id) else { return Vec::new() };
        self.places_taken -= usize::from(!worker.is_session);
        worker.handles
    }

    fn leave_queue(&mut self, id: TaskId) {
        self.queue.retain(|waiting| *waiting != id);
        self.at_hand.remove(&id);
    }
}

impl Shared {
    /// Runs the task if there is a place and no one waits before it; otherwise it waits its turn. A
    /// sub-agent, whose conversation has a name, runs at once: its parent waits for it, and if it
    /// waited for the parent's place in turn, neither would ever go on.
    pub(super) async fn enqueue(
        self: &Arc<Self>,
        loaded: Loaded,
        session: Option<Arc<str>>,
    ) -> TaskHandle {
        let id = loaded.state.id();
        let (sender, done) = oneshot::channel();
        let at_once = {
            let mut inner = self.desk.inner();
            inner.given_up.remove(&id);
            inner.handles.entry(id).or_default().push(sender);
            if session.is_some() {
                inner.take_place(id, true).map(|signals| (loaded, signals))
            } else {
                inner.queue.push_back(id);
                if inner.at_hand.len() < self.desk.limit {
                    inner.at_hand.insert(id, loaded);
                }
                None
            }
        };
        if let Some((loaded, signals)) = at_once {
            tokio::spawn(work(Arc::clone(self), id, Some(loaded), signals, session));
        }
        self.dispatch();
        // Others may have ended it before anyone here waited for it.
        self.look_after_waiting(id).await;
        TaskHandle { id, done }
    }

    /// Fills free places with the tasks that have waited longest.
    fn dispatch(self: &Arc<Self>) {
        while let Some(Turn { id, loaded, signals }) = self.desk.next_turn() {
            tokio::spawn(work(Arc::clone(self), id, loaded, signals, None));
        }
    }

    /// A task that waits for its turn was changed from outside. One that has ended is waited for no
    /// longer, and one that is to end does not wait for a place to do so.
    pub(super) async fn look_after_waiting(self: &Arc<Self>, id: TaskId) {
        if !self.desk.is_waiting(id) {
            return;
        }
        if let Err(error) = self.settle(id).await {
            // Its turn will come, and whoever works on it then reports what is wrong.
            tracing::warn!(%id, %error, "a waiting task could not be looked at");
        }
    }

    async fn settle(self: &Arc<Self>, id: TaskId) -> Result<(), EngineError> {
        let row = load::blocking(&self.parts.store, move |store| store.task_row(id)).await?;
        let status = row.ok_or(EngineError::NotFound(id))?.status;
        match status {
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => {
                self.left(id, Ok(status)).await;
            }
            // Cancelling one that has not begun ends it, so there is nothing left to carry out.
            TaskStatus::Pending => {}
            TaskStatus::Running | TaskStatus::AwaitingHuman => {
                let loaded = load::load(&self.parts.store, id).await?;
                if loaded.state.cancel_requested()
                    && let Some(signals) = self.desk.take_extra_place(id)
                {
                    tokio::spawn(work(Arc::clone(self), id, Some(loaded), signals, None));
                }
            }
        }
        Ok(())
    }

    /// A worker is done with its task, one way or another.
    async fn left(self: &Arc<Self>, id: TaskId, outcome: Outcome) {
        self.answer(id, &outcome);
        self.release(id).await;
        self.dispatch();
    }

    /// Takes the task off the desk, and tells those who wait for it. Whoever has adopted it since
    /// its worker began waits on: a person may have answered in the moment in which it stopped.
    pub(super) fn answer(&self, id: TaskId, outcome: &Outcome) {
        let handles = {
            let mut inner = self.desk.inner();
            let mut handles = inner.leave_place(id);
            let goes_on = matches!(outcome, Ok(status) if !status.is_final());
            let is_waited_for = inner.handles.contains_key(&id);
            if is_waited_for && !(goes_on && inner.queue.contains(&id)) {
                inner.leave_queue(id);
                handles.extend(inner.handles.remove(&id).unwrap_or_default());
            }
            // A runtime that is gone writes nothing more.
            if outcome.is_err() && !inner.closed {
                inner.given_up.insert(id, 0);
            }
            handles
        };
        if let Err(error) = outcome {
            tracing::warn!(%id, %error, "a task was left");
        }
        for handle in handles {
            // Whoever dropped the handle does not wait.
            let _ = handle.send(outcome.clone());
        }
    }
}

async fn work(
    shared: Arc<Shared>,
    id: TaskId,
    loaded: Option<Loaded>,
    signals: mpsc::UnboundedReceiver<Signal>,
    session: Option<Arc<str>>,
) {
    let loaded = match loaded {
        Some(loaded) => Ok(loaded),
        None => load::load(&shared.parts.store, id).await,
    };
    let outcome = match loaded {
        // On a task of its own, so that even a panic is an outcome that someone hears of.
        Ok(loaded) => {
            let worker = Worker::new(Arc::clone(&shared), loaded, signals, session);
            tokio::spawn(worker.run()).await.unwrap_or_else(|panic| {
                Err(EngineError::Panicked { task: id, panic: panic.to_string() })
            })
        }
        Err(error) => Err(error),
    };
    shared.left(id, outcome).await;
}
