//! A store that crashes on demand, like a process that is killed.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use polity_store::{
    ChangeFeed, CheckpointRow, Commit, CommitError, CommitTicket, EventHeader, ExecutionFilter,
    ExecutionRow, ImportError, RemovalOutcome, SpendingRow, Store, StoreError, StoreFuture,
    TaskFilter, TaskImport, TaskRow, TaskTree,
};

/// The interval at which the change feed of a crashed store fails.
const FAILURE_INTERVAL: Duration = Duration::from_millis(100);

/// The side of a commit on which the process crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSide {
    /// The commit never reaches the disk.
    Before,
    /// The commit is durable, but not acknowledged.
    After,
}

/// An acknowledged commit: the stream, the sequence of its last event and the number of events.
pub type AcknowledgedCommit = (StreamId, StreamSequence, usize);

/// One process's view of a store that outlives it.
pub struct CrashingStore {
    inner: Arc<dyn Store>,
    state: Arc<Mutex<CrashState>>,
}

#[derive(Default)]
struct CrashState {
    /// The number of event reads that fail before they succeed again.
    reads_to_fail: u32,
    /// The number of commits before the crash; none for no crash.
    commits_left: Option<(u32, CrashSide)>,
    has_crashed: bool,
    acknowledged: Vec<AcknowledgedCommit>,
    /// The number of reads of a stream from its beginning.
    whole_reads: u32,
}

impl CrashingStore {
    /// Crashes at this commit, counted from 0; never without one.
    pub fn new(inner: Arc<dyn Store>, crash: Option<(u32, CrashSide)>) -> Self {
        let state = CrashState { commits_left: crash, ..CrashState::default() };
        Self { inner, state: Arc::new(Mutex::new(state)) }
    }

    /// Fails the next reads of events, like a disk that is unreadable for a while.
    pub fn fail_reads(&self, count: u32) {
        self.state().reads_to_fail = count;
    }

    /// Crashes now.
    pub fn crash(&self) {
        self.state().has_crashed = true;
    }

    /// True if it has crashed.
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Every commit whose success was acknowledged to this process.
    pub fn acknowledged(&self) -> Vec<AcknowledgedCommit> {
        self.state().acknowledged.clone()
    }

    /// The number of reads of a stream from its beginning.
    pub fn whole_reads(&self) -> u32 {
        self.state().whole_reads
    }

    fn state(&self) -> MutexGuard<'_, CrashState> {
        self.state.lock().unwrap()
    }

    /// Reads unless the process has crashed.
    fn read<'a, T, E: From<StoreError>>(
        &'a self,
        read: impl FnOnce(&'a dyn Store) -> StoreFuture<'a, T, E>,
    ) -> StoreFuture<'a, T, E> {
        if self.has_crashed() {
            return StoreFuture::ready(Err(StoreError::Closed.into()));
        }
        read(&*self.inner)
    }
}

/// A change feed that fails once its store has crashed.
struct CrashingFeed {
    inner: Box<dyn ChangeFeed>,
    state: Arc<Mutex<CrashState>>,
}

impl ChangeFeed for CrashingFeed {
    fn next(&mut self) -> StoreFuture<'_, Vec<EventHeader>> {
        StoreFuture::pending(async {
            let changes = self.inner.next().await;
            if self.state.lock().unwrap().has_crashed {
                tokio::time::sleep(FAILURE_INTERVAL).await;
                return Err(StoreError::Closed);
            }
            changes
        })
    }
}

impl Store for CrashingStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        let lost = || CommitTicket::answered(Err(CommitError::Store(StoreError::Closed)));
        let mut state = self.state();
        if state.has_crashed {
            return lost();
        }
        let crash = match &mut state.commits_left {
            Some((0, side)) => Some(*side),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        state.has_crashed = crash.is_some();
        if crash == Some(CrashSide::Before) {
            return lost();
        }
        let (stream, count) = (commit.stream.clone(), commit.events.len());
        // A ticket may not be waited for on a thread that runs asynchronous work.
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| self.inner.commit(commit).wait()).join().unwrap()
        });
        if crash == Some(CrashSide::After) {
            return lost();
        }
        if let Ok(receipt) = &answer {
            state.acknowledged.push((stream, receipt.last_sequence, count));
        }
        CommitTicket::answered(answer)
    }

    fn changes(&self, after: JournalPosition) -> Box<dyn ChangeFeed> {
        let (inner, state) = (self.inner.changes(after), Arc::clone(&self.state));
        Box::new(CrashingFeed { inner, state })
    }

    fn import(&self, tasks: Vec<TaskImport>) -> StoreFuture<'_, (), ImportError> {
        self.read(|store| store.import(tasks))
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> StoreFuture<'_, Vec<RemovalOutcome>> {
        self.read(|store| store.remove(units))
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> StoreFuture<'_, Vec<RecordedEvent>> {
        {
            let mut state = self.state();
            if state.reads_to_fail > 0 {
                state.reads_to_fail -= 1;
                let (path, detail) = ("journal".into(), "scripted failure".into());
                return StoreFuture::ready(Err(StoreError::Failed { path, detail }));
            }
            if after == StreamSequence::default() {
                state.whole_reads += 1;
            }
        }
        self.read(|store| store.events(stream, after))
    }

    fn newest_events(&self, stream: &StreamId, limit: u32) -> StoreFuture<'_, Vec<RecordedEvent>> {
        self.read(|store| store.newest_events(stream, limit))
    }

    fn headers_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EventHeader>> {
        self.read(|store| store.headers_after(after, limit))
    }

    fn last_position(&self) -> StoreFuture<'_, JournalPosition> {
        self.read(|store| store.last_position())
    }

    fn task_row(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRow>> {
        self.read(|store| store.task_row(id))
    }

    fn task_rows(&self, filter: &TaskFilter) -> StoreFuture<'_, Vec<TaskRow>> {
        self.read(|store| store.task_rows(filter))
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> StoreFuture<'_, Vec<TaskId>> {
        self.read(|store| store.task_ids_by_prefix(prefix, limit))
    }

    fn task(&self, row: &TaskRow) -> StoreFuture<'_, Task> {
        self.read(|store| store.task(row))
    }

    fn task_tree(&self, task: TaskId) -> StoreFuture<'_, TaskTree> {
        self.read(|store| store.task_tree(task))
    }

    fn execution(&self, id: ExecutionId) -> StoreFuture<'_, Option<AgentExecution>> {
        self.read(|store| store.execution(id))
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> StoreFuture<'_, Vec<ExecutionRow>> {
        self.read(|store| store.execution_rows(filter))
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ExecutionId>> {
        self.read(|store| store.execution_ids_by_prefix(prefix, limit))
    }

    fn sealed_input(&self, task: TaskId) -> StoreFuture<'_, Option<String>> {
        self.read(|store| store.sealed_input(task))
    }

    fn executions(&self, task: TaskId) -> StoreFuture<'_, Vec<AgentExecution>> {
        self.read(|store| store.executions(task))
    }

    fn messages(&self, task: TaskId) -> StoreFuture<'_, Vec<Message>> {
        self.read(|store| store.messages(task))
    }

    fn checkpoints(&self, task: TaskId) -> StoreFuture<'_, Vec<CheckpointRow>> {
        self.read(|store| store.checkpoints(task))
    }

    fn spending(&self) -> StoreFuture<'_, Vec<SpendingRow>> {
        self.read(|store| store.spending())
    }

    fn toggled_agents(&self) -> StoreFuture<'_, Vec<Name>> {
        self.read(|store| store.toggled_agents())
    }

    fn definition(&self, digest: &Digest) -> StoreFuture<'_, Option<String>> {
        self.read(|store| store.definition(digest))
    }
}
