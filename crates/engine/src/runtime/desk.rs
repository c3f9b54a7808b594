//! The desk: who is at work, and whose turn is next.
//!
//! A task that waits for its turn is a pending row of the store and nothing else. Only handles that
//! someone holds, and tasks that were adopted in the middle of their run, are kept here.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::event::{Position, Sequence};
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use tokio::sync::{mpsc, oneshot};

use super::load::{self, Loaded};
use super::worker::Worker;
use super::{EngineError, Outcome, Shared, TaskHandle};
use crate::driver::BoxFuture;

/// What a worker is told while it waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    /// Someone in this process wants the task to end.
    Cancel,
    /// The task's journal has reached this point; if the worker did not write it, others did.
    Changed(Sequence),
}

/// How a task waits for its turn.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// It has not begun.
    Pending,
    /// It was adopted in the middle of its run.
    Adopted,
}

pub(super) struct Desk {
    limit: usize,
    inner: Mutex<Inner>,
    /// Held by the one who reads the queue: where many tasks begin or end at once, one reader
    /// finds places for all of them, and the others would only read the same rows.
    queue: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) closed: bool,
    pub(super) workers: HashMap<TaskId, AtWork>,
    /// How many of the workers take up a place.
    places_taken: usize,
    /// Adopted in the middle of their run, and waiting for a free place.
    adopted: VecDeque<TaskId>,
    /// Left with an error, and not let go of yet. They are not tried again here, where they would
    /// only fail again, at once and for ever.
    /// Counted is how often letting go was tried.
    pub(super) given_up: HashMap<TaskId, u32>,
    /// How often in a row the queue could not be read.
    pub(super) queue_failures: u32,
    /// Whom to tell when a task is left alone.
    pub(super) handles: HashMap<TaskId, Vec<oneshot::Sender<Outcome>>>,
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
        let (inner, queue) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { limit: limit.get() as usize, inner, queue }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change below is a single step, so a panic elsewhere leaves the desk whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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
    }

    /// How a task waits that someone in this process waits for, and no worker is on.
    fn waiting(&self, id: TaskId) -> Option<Waiting> {
        let inner = self.inner();
        if inner.workers.contains_key(&id) || !inner.handles.contains_key(&id) {
            return None;
        }
        Some(if inner.adopted.contains(&id) { Waiting::Adopted } else { Waiting::Pending })
    }

    /// A place for the task whatever the limit: for one that is only to be ended.
    fn take_extra_place(&self, id: TaskId) -> Option<mpsc::UnboundedReceiver<Signal>> {
        let mut inner = self.inner();
        inner.adopted.retain(|adopted| *adopted != id);
        inner.take_place(id, usize::MAX, false)
    }

    /// A place for the task, if there is one and the task has none yet.
    fn take_place(&self, id: TaskId) -> Option<mpsc::UnboundedReceiver<Signal>> {
        self.inner().take_place(id, self.limit, false)
    }

    /// A place for the task, if there is one and no other task waits for it.
    fn take_place_alone(&self, id: TaskId) -> Option<mpsc::UnboundedReceiver<Signal>> {
        let mut inner = self.inner();
        // Whoever has a worker is no longer among those who wait.
        if inner.handles.keys().any(|waiting| *waiting != id) {
            return None;
        }
        let signals = inner.take_place(id, self.limit, false)?;
        inner.adopted.retain(|adopted| *adopted != id);
        Some(signals)
    }

    /// A place for the adopted task that has waited longest.
    fn take_adopted(&self) -> Option<(TaskId, mpsc::UnboundedReceiver<Signal>)> {
        let mut inner = self.inner();
        let id = *inner.adopted.front()?;
        let signals = inner.take_place(id, self.limit, false)?;
        inner.adopted.pop_front();
        Some((id, signals))
    }

    fn has_place(&self) -> bool {
        let inner = self.inner();
        !inner.closed && inner.places_taken < self.limit
    }
}

impl Inner {
    fn take_place(
        &mut self,
        id: TaskId,
        limit: usize,
        is_session: bool,
    ) -> Option<mpsc::UnboundedReceiver<Signal>> {
        let is_full = !is_session && self.places_taken >= limit;
        if self.closed || is_full || self.workers.contains_key(&id) {
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
        {
            let mut inner = self.desk.inner();
            inner.given_up.remove(&id);
            inner.handles.entry(id).or_default().push(sender);
            if loaded.state.status() != TaskStatus::Pending && session.is_none() {
                inner.adopted.push_back(id);
            }
        }
        if session.is_some() {
            let signals = self.desk.inner().take_place(id, usize::MAX, true);
            if let Some(signals) = signals {
                tokio::spawn(work(Arc::clone(self), id, Ok(loaded), signals, session));
            }
        } else if let Some(signals) = self.desk.take_place_alone(id) {
            tokio::spawn(work(Arc::clone(self), id, Ok(loaded), signals, None));
        } else {
            self.dispatch(Some(loaded)).await;
        }
        // Others may have ended it before anyone here waited for it.
        self.look_after_waiting(id).await;
        TaskHandle { id, done }
    }

    /// Fills free places with the tasks that have waited longest. `at_hand` saves reading a task
    /// that was just written. Boxed, because the workers it starts come back here when they end.
    pub(super) fn dispatch(self: &Arc<Self>, mut at_hand: Option<Loaded>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.desk.has_place() {
                return;
            }
            let _queue = self.desk.queue.lock().await;
            while self.desk.has_place() {
                let next = self.next_in_line().await;
                if next.is_ok() {
                    self.desk.inner().queue_failures = 0;
                }
                let (next, signals) = match next {
                    Ok(Some(next)) => next,
                    Ok(None) => return,
                    Err(error) => return self.queue_unread(error).await,
                };
                let loaded = match at_hand.take_if(|loaded| loaded.state.id() == next) {
                    Some(loaded) => Ok(loaded),
                    None => load::load(&self.parts.store, next).await,
                };
                tokio::spawn(work(Arc::clone(self), next, loaded, signals, None));
            }
        })
    }

    async fn next_in_line(
        &self,
    ) -> Result<Option<(TaskId, mpsc::UnboundedReceiver<Signal>)>, EngineError> {
        if let Some(adopted) = self.desk.take_adopted() {
            return Ok(Some(adopted));
        }
        let owner = self.parts.instance;
        let mut after = Position::default();
        loop {
            let row =
                load::blocking(&self.parts.store, move |store| store.next_pending(owner, after))
                    .await?;
            let Some(row) = row else { return Ok(None) };
            // A worker that has just begun may not have left the queue on disk yet.
            let passed_over = {
                let inner = self.desk.inner();
                inner.workers.contains_key(&row.id) || inner.given_up.contains_key(&row.id)
            };
            if passed_over {
                after = row.created_position;
            } else {
                return Ok(self.desk.take_place(row.id).map(|signals| (row.id, signals)));
            }
        }
    }

    /// A task that waits for its turn was changed from outside. One that has ended is waited for no
    /// longer, and one that is to end does not wait for a place to do so.
    pub(super) async fn look_after_waiting(self: &Arc<Self>, id: TaskId) {
        let Some(waiting) = self.desk.waiting(id) else { return };
        if let Err(error) = self.settle(id, waiting).await {
            // Its turn will come, and whoever works on it then reports what is wrong.
            tracing::warn!(%id, %error, "a waiting task could not be looked at");
        }
    }

    async fn settle(self: &Arc<Self>, id: TaskId, waiting: Waiting) -> Result<(), EngineError> {
        let row = load::blocking(&self.parts.store, move |store| store.task_row(id)).await?;
        let status = row.ok_or(EngineError::NotFound(id))?.status;
        if status.is_final() {
            self.left(id, Ok(status)).await;
            return Ok(());
        }
        match waiting {
            // Cancelling one that has not begun ends it, so there is nothing left to carry out.
            Waiting::Pending => Ok(()),
            Waiting::Adopted => {
                let loaded = load::load(&self.parts.store, id).await?;
                if loaded.state.cancel_requested()
                    && let Some(signals) = self.desk.take_extra_place(id)
                {
                    tokio::spawn(work(Arc::clone(self), id, Ok(loaded), signals, None));
                }
                Ok(())
            }
        }
    }

    /// A worker is done with its task, one way or another.
    async fn left(self: &Arc<Self>, id: TaskId, outcome: Outcome) {
        self.answer(id, &outcome);
        self.release(id).await;
        self.dispatch(None).await;
    }

    /// Takes the task off the desk, and tells those who wait for it. Whoever has adopted it since
    /// its worker began waits on: a person may have answered in the moment in which it stopped.
    pub(super) fn answer(&self, id: TaskId, outcome: &Outcome) {
        let handles = {
            let mut inner = self.desk.inner();
            let mut handles = inner.leave_place(id);
            let goes_on = matches!(outcome, Ok(status) if !status.is_final());
            if !(goes_on && inner.adopted.contains(&id)) {
                inner.adopted.retain(|adopted| *adopted != id);
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
    loaded: Result<Loaded, EngineError>,
    signals: mpsc::UnboundedReceiver<Signal>,
    session: Option<Arc<str>>,
) {
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
