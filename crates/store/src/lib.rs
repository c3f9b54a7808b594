//! What happened: the journal and its projections.
//!
//! [`Store`] is the contract. [`SqliteStore`] keeps it on disk, [`MemoryStore`] in memory; both
//! pass the same conformance suite. A store decides nothing: it checks that a commit follows on
//! what is there, makes it durable and keeps the projections in step.

mod commit;
mod error;
mod import;
pub mod instances;
mod memory;
mod projection;
mod removal;
mod sqlite;

pub use commit::{Commit, CommitError, CommitTicket, Committed, PinnedDefinition};
pub use error::StoreError;
pub use import::{Import, ImportError};
pub use memory::MemoryStore;
pub use projection::{CheckpointRow, MessageRow, SpendingRow, TaskRow};
pub use removal::{Kept, Removal};
pub use sqlite::{Access, Durability, SqliteStore, restore};

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use polity_model::usage::Usage;

/// Where an event stands, without what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its place among all events.
    pub position: JournalPosition,
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its place in that stream.
    pub sequence: StreamSequence,
}

/// Which tasks to list. Newest first.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only tasks in one of these; empty for any.
    pub statuses: Vec<TaskStatus>,
    /// Only tasks of this agent or workflow.
    pub assigned_agent: Option<String>,
    /// Only the sub-agents' tasks of this task.
    pub parent: Option<TaskId>,
    /// Only tasks that are a part of no other.
    pub roots_only: bool,
    /// Only tasks that are a part of another.
    pub parts_only: bool,
    /// Only the forks of this task.
    pub forked_from: Option<TaskId>,
    /// Only tasks that were given the same.
    pub request: Option<Digest>,
    /// Only tasks that were created at this time or later.
    pub created_since: Option<Timestamp>,
    /// Only tasks that wait for a person whose deadline is not after this time.
    pub overdue_at: Option<Timestamp>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// Which executions to list. Newest first.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those that wait for a place, or have begun and are not over.
    pub open_only: bool,
    /// Only those that take up, or wait for, a place of this pool.
    pub pool: Option<String>,
    /// At most this many.
    pub limit: Option<u32>,
}

/// An execution, and whose task it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecutionRow {
    /// The process that its task belongs to.
    pub owner: Option<InstanceId>,
    /// The execution.
    pub execution: AgentExecution,
}

/// A task with all that are parts of it, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tree {
    /// How many tasks there are, itself included.
    pub tasks: u64,
    /// What they have used.
    pub usage: Usage,
}

/// The journal with its projections.
///
/// Reads block for as long as the disk takes: call them where blocking is allowed. A commit does
/// not block; its ticket can be awaited or waited for.
pub trait Store: Send + Sync {
    /// Appends events to one stream.
    ///
    /// The commit stands alone: it fails with a conflict when `expected_sequence` is not the
    /// stream's newest, or when it is made in the name of a former owner, and other commits are
    /// not touched by that. The ticket is answered when the events are durable, never before.
    fn commit(&self, commit: Commit) -> CommitTicket;

    /// Appends events as [`Store::commit`] does, but in this thread where that can be, which spares
    /// two changes of thread. It blocks for as long as the disk takes: for callers whose thread has
    /// nothing else to do meanwhile.
    fn commit_here(&self, commit: Commit) -> CommitTicket {
        self.commit(commit)
    }

    /// Takes in tasks that happened in another store, all or none. Their events get positions of
    /// their own and keep their sequences. Each task must be new here, and follow on those that it
    /// is a part or a fork of. What they spent is not added to [`Store::spending`]. Blocks until
    /// all is durable.
    fn import(&self, tasks: Vec<Import>) -> Result<(), ImportError>;

    /// Removes ended tasks with everything that is theirs: events, messages, checkpoints,
    /// executions, and definitions that no one else pins. What they spent stays spent.
    ///
    /// Each unit goes as a whole or not at all. One that has come to life since it was decided, or
    /// that others hold on to, is refused alone. Positions are never used again. Blocks until all
    /// is durable; several units share a transaction, so a few hundred at a time are enough.
    fn remove(&self, units: Vec<Vec<TaskId>>) -> Result<Vec<Removal>, StoreError>;

    /// The events of one stream after a sequence, oldest first.
    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> Result<Vec<RecordedEvent>, StoreError>;

    /// The newest events of one stream, newest first, at most `limit` of them.
    fn newest_events(
        &self,
        stream: &StreamId,
        limit: u32,
    ) -> Result<Vec<RecordedEvent>, StoreError>;

    /// What was committed after a position, by any process, oldest first.
    fn headers_after(&self, after: JournalPosition, limit: u32) -> Result<Vec<Header>, StoreError>;

    /// The position of the newest event of all, also when that was removed.
    fn last_position(&self) -> Result<JournalPosition, StoreError>;

    /// One task's row.
    fn task_row(&self, id: TaskId) -> Result<Option<TaskRow>, StoreError>;

    /// Rows of tasks, newest first.
    fn task_rows(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, StoreError>;

    /// The ids that begin with a text, at most `limit` of them.
    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> Result<Vec<TaskId>, StoreError>;

    /// The task with its texts: what was asked and what came out.
    fn task(&self, row: &TaskRow) -> Result<Task, StoreError>;

    /// A task and its sub-agents, and theirs in turn, summed up.
    fn tree(&self, task: TaskId) -> Result<Tree, StoreError>;

    /// An execution.
    fn execution(&self, id: ExecutionId) -> Result<Option<AgentExecution>, StoreError>;

    /// Executions of any task, newest first.
    fn execution_rows(&self, filter: &ExecutionFilter) -> Result<Vec<ExecutionRow>, StoreError>;

    /// The ids of executions that begin with a text, at most `limit` of them.
    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> Result<Vec<ExecutionId>, StoreError>;

    /// What must not be seen in the journal of a task; nothing once it has ended.
    fn sealed_input(&self, task: TaskId) -> Result<Option<String>, StoreError>;

    /// The executions of a task, oldest first.
    fn executions(&self, task: TaskId) -> Result<Vec<AgentExecution>, StoreError>;

    /// The conversation of a task, oldest first.
    fn messages(&self, task: TaskId) -> Result<Vec<Message>, StoreError>;

    /// The checkpoints of a task, oldest first.
    fn checkpoints(&self, task: TaskId) -> Result<Vec<CheckpointRow>, StoreError>;

    /// What model calls used, by day and agent: oldest day first, then by name.
    fn spending(&self) -> Result<Vec<SpendingRow>, StoreError>;

    /// The agents of which anyone ever said whether they take work, by name.
    fn switched_agents(&self) -> Result<Vec<Name>, StoreError>;

    /// A definition that some task pinned, in its canonical form.
    fn definition(&self, digest: &Digest) -> Result<Option<String>, StoreError>;
}
