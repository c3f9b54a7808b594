//! The scheduler: tracks running workers and starts the next queued task.
//!
//! A queued task is a row in the store; the scheduler keeps only its id and its completion handles.
//! It caches the loaded state of the first few queued tasks, up to the concurrency limit, so that
//! starting them needs no read. A task that waits for its next attempt or for a slot of its CLI
//! agent keeps its worker and gives up its slot.

mod tree_slots;

use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use polity_model::event::StreamSequence;
use polity_model::ids::TaskId;
use polity_model::machine::task::TaskStatus;
use tokio::sync::{Notify, mpsc, oneshot};

use super::history::{LoadedTask, load_task};
use super::lifecycle::release_task;
use super::worker::Worker;
use super::{EngineError, RuntimeInner, TaskHandle, TaskOutcome};
use tree_slots::TreeSlots;
pub(super) use tree_slots::WorkerActivity;

/// A signal to a waiting worker.
#[derive(Debug, Clone, Copy)]
pub(super) enum WorkerSignal {
    /// This process was asked to cancel the task.
    Cancel,
    /// The task's journal has reached this sequence, perhaps by a commit of another process.
    Changed(StreamSequence),
}

/// The workers and the queue of a runtime.
pub(super) struct Scheduler {
    limit: usize,
    state: Mutex<SchedulerState>,
    /// Notified when a task is given up.
    abandoned: Arc<Notify>,
}

struct SchedulerState {
    is_closed: bool,
    /// True once queued tasks stay in the queue, because this process is about to exit.
    is_draining: bool,
    workers: HashMap<TaskId, ActiveWorker>,
    /// The slots of the workers that count against the limit.
    slots: TreeSlots,
    /// Tasks that wait for a slot, in order.
    queue: VecDeque<TaskId>,
    /// The loaded state of some queued tasks, at most as many as there are slots.
    loaded: HashMap<TaskId, LoadedTask>,
    /// Tasks given up after an error and not yet released. They are not run again here, where they
    /// would fail again at once.
    abandoned: HashSet<TaskId>,
    /// Completion handles of queued tasks.
    handles: HashMap<TaskId, Vec<oneshot::Sender<TaskOutcome>>>,
}

/// A task that may start.
struct ReadyTask {
    id: TaskId,
    loaded: Option<LoadedTask>,
    signals: mpsc::UnboundedReceiver<WorkerSignal>,
}

/// A worker, with the completion handles from before its start.
struct ActiveWorker {
    /// The first task of the tree whose slot it uses. None if it runs beyond the limit.
    tree: Option<TaskId>,
    activity: WorkerActivity,
    signals: mpsc::UnboundedSender<WorkerSignal>,
    handles: Vec<oneshot::Sender<TaskOutcome>>,
}

impl Scheduler {
    pub(super) fn new(limit: NonZeroU32) -> Self {
        let limit = limit.get() as usize;
        let state = SchedulerState {
            is_closed: false,
            is_draining: false,
            workers: HashMap::new(),
            slots: TreeSlots::new(limit),
            queue: VecDeque::new(),
            loaded: HashMap::new(),
            abandoned: HashSet::new(),
            handles: HashMap::new(),
        };
        Self { limit, state: Mutex::new(state), abandoned: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, SchedulerState> {
        // Every change is a single step, so a panic elsewhere leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a worker is running.
    pub(super) fn has_workers(&self) -> bool {
        !self.state().workers.is_empty()
    }

    /// True if no worker is running and none will start.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.workers.is_empty() && (state.is_draining || state.queue.is_empty())
    }

    /// Leaves queued tasks in the queue from now on. Parts of running tasks still start.
    pub(super) fn drain(&self) {
        self.state().is_draining = true;
    }

    /// True if one worker is running and no task is queued.
    pub(super) fn has_single_worker(&self) -> bool {
        let state = self.state();
        state.workers.len() == 1 && state.queue.is_empty()
    }

    /// Asks the task's worker to cancel it. Returns false if there is no worker.
    pub(super) fn cancel(&self, id: TaskId) -> bool {
        self.signal(id, WorkerSignal::Cancel)
    }

    /// Signals the task's worker. Returns false if there is no worker.
    pub(super) fn signal(&self, id: TaskId, signal: WorkerSignal) -> bool {
        self.state().workers.get(&id).is_some_and(|worker| worker.signals.send(signal).is_ok())
    }

    /// Asks the task's worker to cancel it. Returns the receiver of the outcome.
    pub(super) fn cancel_and_watch(&self, id: TaskId) -> Option<oneshot::Receiver<TaskOutcome>> {
        let (sender, done) = oneshot::channel();
        let mut state = self.state();
        let worker = state.workers.get_mut(&id)?;
        worker.signals.send(WorkerSignal::Cancel).ok()?;
        worker.handles.push(sender);
        Some(done)
    }

    /// Stops all workers. They leave their tasks as they are.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.workers.clear();
        state.slots.clear();
        state.handles.clear();
        state.queue.clear();
        state.loaded.clear();
    }

    /// The notification of tasks that are given up.
    pub(super) fn abandoned(&self) -> Arc<Notify> {
        Arc::clone(&self.abandoned)
    }

    /// The tasks that are given up and not yet released.
    pub(super) fn tasks_to_release(&self) -> Vec<TaskId> {
        let state = self.state();
        if state.is_closed { Vec::new() } else { state.abandoned.iter().copied().collect() }
    }

    /// True if the task is given up and not yet released.
    pub(super) fn is_abandoned(&self, id: TaskId) -> bool {
        self.state().abandoned.contains(&id)
    }

    /// Forgets a task that was released.
    pub(super) fn forget_abandoned(&self, id: TaskId) {
        self.state().abandoned.remove(&id);
    }

    /// True if the task is queued here and has no worker.
    fn is_queued(&self, id: TaskId) -> bool {
        let state = self.state();
        !state.workers.contains_key(&id) && state.handles.contains_key(&id)
    }

    /// Changes the activity of the task's worker. Returns the receiver of the slot if the worker
    /// must wait for one.
    fn set_activity(&self, id: TaskId, activity: WorkerActivity) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        let SchedulerState { workers, slots, .. } = &mut *state;
        let worker = workers.get_mut(&id)?;
        let before = std::mem::replace(&mut worker.activity, activity);
        slots.change(worker.tree?, before, activity)
    }

    /// Starts a task beyond the limit, to cancel it.
    fn start_extra(&self, id: TaskId) -> Option<mpsc::UnboundedReceiver<WorkerSignal>> {
        let mut state = self.state();
        state.leave_queue(id);
        state.start(id, None)
    }

    /// Starts the oldest queued task, if a slot is free.
    fn start_next(&self) -> Option<ReadyTask> {
        let mut state = self.state();
        state.slots.grant_returning();
        if state.is_draining || !state.slots.has_free() {
            return None;
        }
        // A task that was adopted again waits until its last worker has ended.
        let next = state.queue.iter().position(|id| !state.workers.contains_key(id))?;
        let id = state.queue.remove(next)?;
        let loaded = state.loaded.remove(&id);
        let signals = state.start(id, Some(id))?;
        Some(ReadyTask { id, loaded, signals })
    }

    /// Removes the task's worker, and sends the outcome to those who wait. A task that was adopted
    /// again since its worker started stays queued: its review was answered in that moment.
    fn finish(&self, id: TaskId, outcome: &TaskOutcome) {
        let handles = {
            let mut state = self.state();
            let mut handles = state.stop(id);
            let can_go_on = matches!(outcome, Ok(status) if !status.is_final());
            let is_waited_for = state.handles.contains_key(&id);
            if is_waited_for && !(can_go_on && state.queue.contains(&id)) {
                state.leave_queue(id);
                handles.extend(state.handles.remove(&id).unwrap_or_default());
            }
            // A closed runtime commits nothing more.
            if outcome.is_err() && !state.is_closed {
                state.abandoned.insert(id);
                self.abandoned.notify_one();
            }
            handles
        };
        if let Err(error) = outcome {
            tracing::warn!(%id, %error, "a worker stopped before its task ended");
        }
        for handle in handles {
            // The receiver may have stopped waiting.
            let _ = handle.send(outcome.clone());
        }
    }
}

impl SchedulerState {
    fn start(
        &mut self,
        id: TaskId,
        tree: Option<TaskId>,
    ) -> Option<mpsc::UnboundedReceiver<WorkerSignal>> {
        if self.is_closed || self.workers.contains_key(&id) {
            return None;
        }
        let (signals, receiver) = mpsc::unbounded_channel();
        let handles = self.handles.remove(&id).unwrap_or_default();
        let activity = WorkerActivity::Busy;
        self.workers.insert(id, ActiveWorker { tree, activity, signals, handles });
        if let Some(tree) = tree {
            self.slots.enter(tree);
        }
        Some(receiver)
    }

    fn stop(&mut self, id: TaskId) -> Vec<oneshot::Sender<TaskOutcome>> {
        let Some(worker) = self.workers.remove(&id) else { return Vec::new() };
        if let Some(tree) = worker.tree {
            self.slots.leave(tree, worker.activity);
        }
        worker.handles
    }

    fn leave_queue(&mut self, id: TaskId) {
        self.queue.retain(|queued| *queued != id);
        self.loaded.remove(&id);
    }
}

/// Runs the task if a slot is free and no other is queued; queues it otherwise. A sub-task, which
/// has a session name, runs at once: its parent waits for it and shares its slot.
pub(super) async fn enqueue(
    inner: &Arc<RuntimeInner>,
    loaded: LoadedTask,
    session: Option<Arc<str>>,
) -> TaskHandle {
    let scheduler = &inner.scheduler;
    let id = loaded.state.id();
    let (sender, done) = oneshot::channel();
    let sub_task = {
        let mut state = scheduler.state();
        state.abandoned.remove(&id);
        state.handles.entry(id).or_default().push(sender);
        if session.is_some() {
            let parent = loaded.state.task().order().parent_task_id;
            let tree = parent.and_then(|parent| state.workers.get(&parent)?.tree);
            state.start(id, tree).map(|signals| (loaded, signals))
        } else {
            state.queue.push_back(id);
            if state.loaded.len() < scheduler.limit {
                state.loaded.insert(id, loaded);
            }
            None
        }
    };
    if let Some((loaded, signals)) = sub_task {
        tokio::spawn(run_worker(Arc::clone(inner), id, Some(loaded), signals, session));
    }
    dispatch(inner);
    // Another process may have ended it before it was queued here.
    check_queued(inner, id).await;
    TaskHandle { id, done }
}

/// Gives up the slot of a waiting task, unless others of its tree are busy.
pub(super) fn give_up_slot(inner: &Arc<RuntimeInner>, id: TaskId, activity: WorkerActivity) {
    inner.scheduler.set_activity(id, activity);
    dispatch(inner);
}

/// Makes a waiting task busy again. Returns the receiver of the slot if it must wait for one.
pub(super) fn retake_slot(inner: &RuntimeInner, id: TaskId) -> Option<oneshot::Receiver<()>> {
    inner.scheduler.set_activity(id, WorkerActivity::Busy)
}

/// Fills free slots with queued tasks.
fn dispatch(inner: &Arc<RuntimeInner>) {
    while let Some(ReadyTask { id, loaded, signals }) = inner.scheduler.start_next() {
        tokio::spawn(run_worker(Arc::clone(inner), id, loaded, signals, None));
    }
}

/// Reacts to a change of a queued task from outside: completes the handles of one that has ended,
/// and cancels one at once instead of queueing it for that.
pub(super) async fn check_queued(inner: &Arc<RuntimeInner>, id: TaskId) {
    if !inner.scheduler.is_queued(id) {
        return;
    }
    if let Err(error) = settle_queued(inner, id).await {
        // The task's worker will report the error.
        tracing::warn!(%id, %error, "cannot load a queued task");
    }
}

async fn settle_queued(inner: &Arc<RuntimeInner>, id: TaskId) -> Result<(), EngineError> {
    let store = &*inner.deps.store;
    let status = store.task_row(id).await?.ok_or(EngineError::NotFound(id))?.status;
    match status {
        TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => {
            finish(inner, id, Ok(status)).await;
        }
        // A cancel of a pending task ends it at once.
        TaskStatus::Pending => {}
        TaskStatus::Running | TaskStatus::AwaitingHuman => {
            let loaded = load_task(store, id).await?;
            if loaded.state.cancel_requested()
                && let Some(signals) = inner.scheduler.start_extra(id)
            {
                tokio::spawn(run_worker(Arc::clone(inner), id, Some(loaded), signals, None));
            }
        }
    }
    Ok(())
}

async fn finish(inner: &Arc<RuntimeInner>, id: TaskId, outcome: TaskOutcome) {
    inner.scheduler.finish(id, &outcome);
    release_task(inner, id).await;
    dispatch(inner);
}

async fn run_worker(
    inner: Arc<RuntimeInner>,
    id: TaskId,
    loaded: Option<LoadedTask>,
    signals: mpsc::UnboundedReceiver<WorkerSignal>,
    session: Option<Arc<str>>,
) {
    let loaded = match loaded {
        Some(loaded) => Ok(loaded),
        None => load_task(&*inner.deps.store, id).await,
    };
    let outcome = match loaded {
        // In a task of its own, so that a panic becomes an outcome.
        Ok(loaded) => {
            let worker = Worker::new(Arc::clone(&inner), loaded, signals, session);
            tokio::spawn(worker.run()).await.unwrap_or_else(|panic| {
                Err(EngineError::Panicked { task: id, panic: panic.to_string() })
            })
        }
        Err(error) => Err(error),
    };
    finish(&inner, id, outcome).await;
}
