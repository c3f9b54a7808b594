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

/// Reads of the inner store, which fail once the process has crashed.
macro_rules! reads {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $found:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> StoreFuture<'_, $found> {
            self.read(|store| store.$name($($argument),*))
        })*
    };
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

    reads! {
        remove(units: Vec<Vec<TaskId>>) -> Vec<RemovalOutcome>;
        newest_events(stream: &StreamId, limit: u32) -> Vec<RecordedEvent>;
        headers_after(after: JournalPosition, limit: u32) -> Vec<EventHeader>;
        events_after(after: JournalPosition, limit: u32) -> Vec<RecordedEvent>;
        last_position() -> JournalPosition;
        task_row(id: TaskId) -> Option<TaskRow>;
        task_rows(filter: &TaskFilter) -> Vec<TaskRow>;
        task_ids_by_prefix(prefix: &str, limit: u32) -> Vec<TaskId>;
        task(row: &TaskRow) -> Task;
        task_tree(task: TaskId) -> TaskTree;
        execution(id: ExecutionId) -> Option<AgentExecution>;
        execution_rows(filter: &ExecutionFilter) -> Vec<ExecutionRow>;
        execution_ids_by_prefix(prefix: &str, limit: u32) -> Vec<ExecutionId>;
        sealed_input(task: TaskId) -> Option<String>;
        executions(task: TaskId) -> Vec<AgentExecution>;
        messages(task: TaskId) -> Vec<Message>;
        checkpoints(task: TaskId) -> Vec<CheckpointRow>;
        spending() -> Vec<SpendingRow>;
        toggled_agents() -> Vec<Name>;
        definition(digest: &Digest) -> Option<String>;
    }
}
