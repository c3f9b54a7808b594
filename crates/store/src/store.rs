//! The contract of a store.

use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;

use crate::{
    BlockingPermit, ChangeFeed, CheckpointRow, Commit, CommitTicket, CommitTimes, EventHeader,
    ExecutionFilter, ExecutionRow, ImportError, RemovalOutcome, SpendingRow, StoreError,
    StoreFuture, TaskFilter, TaskImport, TaskRow, TaskTree,
};

/// The journal with its projections, on this machine or another.
///
/// Nothing here blocks the caller for long. SQLite answers a point read inline, because it takes
/// microseconds, and runs a scan, whose cost grows with the journal, on a thread for blocking work.
/// The documentation of each read says which of the two it is.
pub trait Store: Send + Sync {
    /// Appends events to one stream.
    ///
    /// The commit fails with a conflict if `expected_sequence` is not the stream's newest, or if
    /// `owner_epoch` is outdated. Other commits of the same batch are not affected. The ticket is
    /// answered when the events are durable, never before.
    fn commit(&self, commit: Commit) -> CommitTicket;

    /// Appends events as [`Store::commit`] does, on the calling thread if possible, which saves two
    /// thread changes. Blocks while the disk writes: the permit proves that nothing else waits.
    fn commit_inline(&self, commit: Commit, _permit: BlockingPermit) -> CommitTicket {
        self.commit(commit)
    }

    /// The times of this process's commits, for metrics. A store that does not measure has none.
    fn commit_times(&self) -> CommitTimes {
        CommitTimes::default()
    }

    /// The commits after a position, as they happen.
    fn changes(&self, after: JournalPosition) -> Box<dyn ChangeFeed>;

    /// Imports tasks from another store, all or none.
    ///
    /// Events get new positions and keep their sequences. Each task must be new here, and come
    /// after its parent and its fork origin. Imported usage is not added to [`Store::spending`].
    fn import(&self, tasks: Vec<TaskImport>) -> StoreFuture<'_, (), ImportError>;

    /// Removes ended tasks with their events, messages, checkpoints and executions, and definitions
    /// that no other task pins. Spending stays.
    ///
    /// A unit is removed as a whole or refused alone: if one of its tasks is active again, or other
    /// tasks depend on it. Positions are never reused. Units share a transaction, so pass at most a
    /// few hundred.
    fn remove(&self, units: Vec<Vec<TaskId>>) -> StoreFuture<'_, Vec<RemovalOutcome>>;

    /// The events of a stream after a sequence, oldest first. A scan.
    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> StoreFuture<'_, Vec<RecordedEvent>>;

    /// The newest events of a stream, newest first. A point read: keep `limit` small.
    fn newest_events(&self, stream: &StreamId, limit: u32) -> StoreFuture<'_, Vec<RecordedEvent>>;

    /// The headers of all events after a position, oldest first. A scan.
    fn headers_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EventHeader>>;

    /// The events of all streams after a position, oldest first. A scan.
    fn events_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<RecordedEvent>>;

    /// The newest position ever assigned, even if its event was removed. A point read.
    fn last_position(&self) -> StoreFuture<'_, JournalPosition>;

    /// The row of a task. A point read.
    fn task_row(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRow>>;

    /// The rows of tasks, newest first. A scan.
    fn task_rows(&self, filter: &TaskFilter) -> StoreFuture<'_, Vec<TaskRow>>;

    /// The ids of tasks that begin with a text. A point read: keep `limit` small.
    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> StoreFuture<'_, Vec<TaskId>>;

    /// The task of a row, with description, result and error. A point read.
    fn task(&self, row: &TaskRow) -> StoreFuture<'_, Task>;

    /// The totals of a task and its sub-tasks, at any depth. A point read.
    fn task_tree(&self, task: TaskId) -> StoreFuture<'_, TaskTree>;

    /// An execution. A point read.
    fn execution(&self, id: ExecutionId) -> StoreFuture<'_, Option<AgentExecution>>;

    /// Executions of any task, newest first. A scan.
    fn execution_rows(&self, filter: &ExecutionFilter) -> StoreFuture<'_, Vec<ExecutionRow>>;

    /// The ids of executions that begin with a text. A point read: keep `limit` small.
    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ExecutionId>>;

    /// The unmasked input of a task; none once the task has ended. A point read.
    fn sealed_input(&self, task: TaskId) -> StoreFuture<'_, Option<String>>;

    /// The executions of a task, oldest first. A scan.
    fn executions(&self, task: TaskId) -> StoreFuture<'_, Vec<AgentExecution>>;

    /// The conversation of a task, oldest first. A scan.
    fn messages(&self, task: TaskId) -> StoreFuture<'_, Vec<Message>>;

    /// The checkpoints of a task, oldest first. A scan.
    fn checkpoints(&self, task: TaskId) -> StoreFuture<'_, Vec<CheckpointRow>>;

    /// The usage of model calls by day and agent: oldest day first, then by name. A scan.
    fn spending(&self) -> StoreFuture<'_, Vec<SpendingRow>>;

    /// The agents that were ever enabled or disabled by command, by name. A point read.
    fn toggled_agents(&self) -> StoreFuture<'_, Vec<Name>>;

    /// The canonical JSON of a pinned definition. A point read.
    fn definition(&self, digest: &Digest) -> StoreFuture<'_, Option<String>>;
}

/// The error of a task row whose first event is not in the journal.
pub(crate) fn missing_creation(row: &TaskRow) -> StoreError {
    StoreError::Unreadable {
        place: format!("position {}", row.created_position.0),
        detail: format!("the creation of task {} is not there", row.id),
    }
}
