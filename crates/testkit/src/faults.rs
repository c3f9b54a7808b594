//! A store that dies on demand, as if its process had been killed.

use std::sync::{Arc, Mutex};

use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use polity_store::{
    CheckpointRow, Commit, CommitError, CommitTicket, ExecutionFilter, ExecutionRow, Header,
    Import, ImportError, Removal, SpendingRow, Store, StoreError, TaskFilter, TaskRow, Tree,
};

/// On which side of a commit the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The commit never reaches the disk.
    Before,
    /// The commit is on disk, and no one hears of it.
    After,
}

/// What was acknowledged: the stream and the sequence of its last event.
pub type Acknowledged = (StreamId, StreamSequence, usize);

/// One process's view of a store that outlives it.
pub struct MortalStore {
    inner: Arc<dyn Store>,
    life: Mutex<Life>,
}

struct Life {
    /// How many times events cannot be read before they can.
    reads_to_fail: u32,
    /// Commits until death; `None` lives on.
    commits_left: Option<(u32, Side)>,
    dead: bool,
    acknowledged: Vec<Acknowledged>,
    /// How often all events of a stream were read.
    whole_reads: u32,
}

impl MortalStore {
    /// Dies at the given commit, counted from 0; lives on without one.
    pub fn new(inner: Arc<dyn Store>, dies: Option<(u32, Side)>) -> Self {
        let life = Life {
            reads_to_fail: 0,
            commits_left: dies,
            dead: false,
            acknowledged: Vec::new(),
            whole_reads: 0,
        };
        Self { inner, life: Mutex::new(life) }
    }

    /// The next reads of a stream's events fail, as on a disk that cannot be read for a while.
    pub fn fail_reads(&self, count: u32) {
        self.life.lock().unwrap().reads_to_fail = count;
    }

    /// Dies now.
    pub fn kill(&self) {
        self.life.lock().unwrap().dead = true;
    }

    /// Whether it has died.
    pub fn is_dead(&self) -> bool {
        self.life.lock().unwrap().dead
    }

    /// Every commit whose success this process has heard of.
    pub fn acknowledged(&self) -> Vec<Acknowledged> {
        self.life.lock().unwrap().acknowledged.clone()
    }

    /// How often all events of a stream were read.
    pub fn whole_reads(&self) -> u32 {
        self.life.lock().unwrap().whole_reads
    }

    fn alive(&self) -> Result<&dyn Store, StoreError> {
        if self.is_dead() { Err(StoreError::Closed) } else { Ok(&*self.inner) }
    }
}

impl Store for MortalStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        let gone = || CommitTicket::answered(Err(CommitError::Store(StoreError::Closed)));
        let mut life = self.life.lock().unwrap();
        if life.dead {
            return gone();
        }
        let last_breath = match &mut life.commits_left {
            Some((0, side)) => Some(*side),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if last_breath.is_some() {
            life.dead = true;
        }
        if last_breath == Some(Side::Before) {
            return gone();
        }
        let (stream, count) = (commit.stream.clone(), commit.events.len());
        // A ticket may not be waited for on a thread that runs asynchronous work.
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| self.inner.commit(commit).wait()).join().unwrap()
        });
        if last_breath == Some(Side::After) {
            return gone();
        }
        if let Ok(committed) = &answer {
            life.acknowledged.push((stream, committed.last_sequence, count));
        }
        CommitTicket::answered(answer)
    }

    fn import(&self, tasks: Vec<Import>) -> Result<(), ImportError> {
        self.alive()?.import(tasks)
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> Result<Vec<Removal>, StoreError> {
        self.alive()?.remove(units)
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        {
            let mut life = self.life.lock().unwrap();
            if life.reads_to_fail > 0 {
                life.reads_to_fail -= 1;
                let (path, detail) = ("journal".into(), "as told".into());
                return Err(StoreError::Failed { path, detail });
            }
            if after == StreamSequence::default() {
                life.whole_reads += 1;
            }
        }
        self.alive()?.events(stream, after)
    }

    fn newest_events(
        &self,
        stream: &StreamId,
        limit: u32,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.alive()?.newest_events(stream, limit)
    }

    fn headers_after(&self, after: JournalPosition, limit: u32) -> Result<Vec<Header>, StoreError> {
        self.alive()?.headers_after(after, limit)
    }

    fn last_position(&self) -> Result<JournalPosition, StoreError> {
        self.alive()?.last_position()
    }

    fn task_row(&self, id: TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.alive()?.task_row(id)
    }

    fn task_rows(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, StoreError> {
        self.alive()?.task_rows(filter)
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> Result<Vec<TaskId>, StoreError> {
        self.alive()?.task_ids_by_prefix(prefix, limit)
    }

    fn task(&self, row: &TaskRow) -> Result<Task, StoreError> {
        self.alive()?.task(row)
    }

    fn tree(&self, task: TaskId) -> Result<Tree, StoreError> {
        self.alive()?.tree(task)
    }

    fn execution(&self, id: ExecutionId) -> Result<Option<AgentExecution>, StoreError> {
        self.alive()?.execution(id)
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> Result<Vec<ExecutionRow>, StoreError> {
        self.alive()?.execution_rows(filter)
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        self.alive()?.execution_ids_by_prefix(prefix, limit)
    }

    fn sealed_input(&self, task: TaskId) -> Result<Option<String>, StoreError> {
        self.alive()?.sealed_input(task)
    }

    fn executions(&self, task: TaskId) -> Result<Vec<AgentExecution>, StoreError> {
        self.alive()?.executions(task)
    }

    fn messages(&self, task: TaskId) -> Result<Vec<Message>, StoreError> {
        self.alive()?.messages(task)
    }

    fn checkpoints(&self, task: TaskId) -> Result<Vec<CheckpointRow>, StoreError> {
        self.alive()?.checkpoints(task)
    }

    fn spending(&self) -> Result<Vec<SpendingRow>, StoreError> {
        self.alive()?.spending()
    }

    fn switched_agents(&self) -> Result<Vec<Name>, StoreError> {
        self.alive()?.switched_agents()
    }

    fn definition(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        self.alive()?.definition(digest)
    }
}
