//! The store on disk: SQLite in WAL mode, one writer thread with group commit, a few readers.
//!
//! A point read takes microseconds and runs inline, because a thread change costs more. A scan may
//! take long and runs on Tokio's threads for blocking work; outside of a Tokio runtime, where
//! blocking is allowed, it runs inline too.

mod backup;
mod busy_wait;
mod change_signal;
mod changes;
mod connection;
mod file_lock;
mod import;
mod open_files;
mod readers;
mod remove;
mod rows;
mod schema;
mod sealing_keys;
mod tables;
mod writer;
mod writer_cache;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use polity_model::digest::Digest;
use polity_model::event::{Event, JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use rusqlite::{Connection, params};

pub use backup::restore;

use crate::commit::{BlockingPermit, Commit, CommitTicket};
use crate::commit_times::CommitTimes;
use crate::import::{ImportError, TaskImport};
use crate::projection::{
    CheckpointRow, ExecutionRow, SpendingRow, TaskRow, TaskTree, into_message,
};
use crate::removal::RemovalOutcome;
use crate::store::missing_creation;
use crate::{ChangeFeed, EventHeader, ExecutionFilter, Store, StoreError, StoreFuture, TaskFilter};
use changes::SqliteChangeFeed;
use open_files::OpenFile;
use readers::ReaderPool;
use rows::{StreamKey, decode_json, find, list};
use sealing_keys::SealingKeys;
use writer::WriterThread;

/// The most faults that a check of the database lists.
const FAULTS_MAX: u32 = 5;

/// The point at which a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommitDurability {
    /// The disk has it: survives a loss of power.
    #[default]
    Full,
    /// The operating system has it: survives a crash of the program. A loss of power may lose the
    /// newest commits, never part of one.
    Relaxed,
}

/// The access that a store is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreAccess {
    /// Reads and writes; creates a missing database.
    ReadWrite(CommitDurability),
    /// Only reads. A missing database reads as empty.
    ReadOnly,
}

/// The store on disk.
#[derive(Debug)]
pub struct SqliteStore {
    readers: Arc<ReaderPool>,
    writer: Option<WriterThread>,
    _open: Option<OpenFile>,
    /// Keeps the database from being replaced. Dropped last, after the writer has ended.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the database in this file. [`StoreAccess::ReadWrite`] creates a missing database and
    /// migrates an older one. A damaged, foreign or newer file is left unchanged.
    pub fn open(path: &Path, access: StoreAccess) -> Result<Self, StoreError> {
        let (writer, open, lock) = match access {
            StoreAccess::ReadWrite(durability) => {
                connection::make_folder(path)?;
                let lock = connection::lock_migrated(path, durability)?;
                let (connection, open) = connection::for_writing(path, durability)?;
                connection::sweep_keys(path, &connection)?;
                (Some(WriterThread::start(connection, path.to_owned())?), open, Some(lock))
            }
            StoreAccess::ReadOnly => {
                let lock = file_lock::shared_for_reader(path)?;
                let lock = if connection::is_older(connection::check_header(path)?) {
                    // Readers need the tables of this version.
                    drop(lock);
                    Some(connection::lock_migrated(path, CommitDurability::Full)?)
                } else {
                    lock
                };
                (None, OpenFile::register(path), lock)
            }
        };
        let readers = Arc::new(ReaderPool::new(path.to_owned(), access));
        Ok(Self { readers, writer, _open: open, _lock: lock })
    }

    /// Writes a consistent copy of the database to a new file, while others use it.
    pub fn backup(&self, target: &Path) -> Result<(), StoreError> {
        let readers = &self.readers;
        readers.with(|connection| backup::write_copy(connection, readers.path(), target))
    }

    /// The faults that a quick check of the whole database finds; none if it is intact. A scan.
    pub fn integrity_faults(&self) -> StoreFuture<'_, Vec<String>> {
        self.scan(|connection| {
            let sql = format!("PRAGMA quick_check({FAULTS_MAX})");
            let mut faults: Vec<String> = connection
                .prepare(&sql)?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            faults.retain(|fault| fault != "ok");
            Ok(faults)
        })
    }

    fn writer(&self) -> Result<&WriterThread, StoreError> {
        self.writer.as_ref().ok_or_else(|| StoreError::NotWritable {
            path: self.readers.path().to_owned(),
            detail: "the store was opened only to be read".into(),
        })
    }

    /// Runs a query of microseconds inline.
    fn point_read<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> StoreFuture<'_, T> {
        StoreFuture::ready(self.readers.query(query))
    }

    /// Runs a query that may take long where blocking is allowed.
    fn scan<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        readers::scan(&self.readers, query)
    }

    /// Finds ids by their beginning. Ids are stored as bytes, so a prefix of the text is a range.
    fn ids_by_prefix<T>(
        &self,
        sql: &str,
        prefix: &str,
        limit: u32,
        id: impl Fn([u8; 16]) -> T,
    ) -> StoreFuture<'_, Vec<T>> {
        let Some((low, high)) = rows::id_range(prefix) else {
            return StoreFuture::ready(Ok(Vec::new()));
        };
        self.point_read(|connection| {
            list(connection, sql, params![low, high, limit], |row| row.get(0).map(&id))
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close();
    }
}

/// An event of a stream, from the columns position, sequence, time and body.
fn decode_recorded(stream: &StreamId, row: &rusqlite::Row<'_>) -> rusqlite::Result<RecordedEvent> {
    Ok(RecordedEvent {
        position: JournalPosition(row.get(0)?),
        stream: stream.clone(),
        sequence: StreamSequence(row.get(1)?),
        at: rows::timestamp(row, 2)?,
        event: decode_json(row, 3)?,
    })
}

impl Store for SqliteStore {
    fn commit_times(&self) -> CommitTimes {
        self.writer.as_ref().map(WriterThread::commit_times).unwrap_or_default()
    }

    fn commit(&self, commit: Commit) -> CommitTicket {
        match self.writer() {
            Ok(writer) => writer.submit(commit),
            Err(error) => CommitTicket::answered(Err(error.into())),
        }
    }

    fn commit_inline(&self, commit: Commit, permit: BlockingPermit) -> CommitTicket {
        match self.writer() {
            Ok(writer) => writer.write_inline(commit, permit),
            Err(error) => CommitTicket::answered(Err(error.into())),
        }
    }

    fn changes(&self, after: JournalPosition) -> Box<dyn ChangeFeed> {
        Box::new(SqliteChangeFeed::new(Arc::clone(&self.readers), after))
    }

    fn import(&self, tasks: Vec<TaskImport>) -> StoreFuture<'_, (), ImportError> {
        let writer = match self.writer() {
            Ok(writer) => writer,
            Err(error) => return StoreFuture::ready(Err(error.into())),
        };
        let path = self.readers.path().to_owned();
        match import::encode(tasks) {
            Ok(encoded) => writer
                .run_exclusive(move |connection| import::write_all(connection, &path, &encoded)),
            Err(error) => StoreFuture::ready(Err(error)),
        }
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> StoreFuture<'_, Vec<RemovalOutcome>> {
        let writer = match self.writer() {
            Ok(writer) => writer,
            Err(error) => return StoreFuture::ready(Err(error)),
        };
        let path = self.readers.path().to_owned();
        writer.run_exclusive(move |connection| {
            let removed = units.iter().map(|unit| remove::remove_unit(connection, unit));
            removed
                .collect::<rusqlite::Result<_>>()
                .map_err(|error| connection::explain(&path, &error))
        })
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> StoreFuture<'_, Vec<RecordedEvent>> {
        let stream = stream.clone();
        let sql = "SELECT position, sequence, at, body FROM events \
                   WHERE stream = (SELECT stream FROM streams WHERE key = ?1) \
                   AND sequence > ?2 ORDER BY sequence";
        self.scan(move |connection| {
            let values = params![StreamKey::of(&stream), after.0];
            list(connection, sql, values, |row| decode_recorded(&stream, row))
        })
    }

    fn newest_events(&self, stream: &StreamId, limit: u32) -> StoreFuture<'_, Vec<RecordedEvent>> {
        let sql = "SELECT position, sequence, at, body FROM events \
                   WHERE stream = (SELECT stream FROM streams WHERE key = ?1) \
                   ORDER BY sequence DESC LIMIT ?2";
        self.point_read(|connection| {
            let values = params![StreamKey::of(stream), limit];
            list(connection, sql, values, |row| decode_recorded(stream, row))
        })
    }

    fn headers_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<EventHeader>> {
        self.scan(move |connection| tables::headers_after(connection, after, limit))
    }

    fn events_after(
        &self,
        after: JournalPosition,
        limit: u32,
    ) -> StoreFuture<'_, Vec<RecordedEvent>> {
        let sql = "SELECT position, sequence, at, body, key FROM events \
                   JOIN streams ON streams.stream = events.stream \
                   WHERE position > ?1 ORDER BY position LIMIT ?2";
        self.scan(move |connection| {
            list(connection, sql, params![after.0, limit], |row| {
                decode_recorded(&row.get::<_, StreamKey>(4)?.stream()?, row)
            })
        })
    }

    fn last_position(&self) -> StoreFuture<'_, JournalPosition> {
        self.point_read(tables::last_position)
    }

    fn task_row(&self, id: TaskId) -> StoreFuture<'_, Option<TaskRow>> {
        self.point_read(|connection| tables::task_row(connection, id))
    }

    fn task_rows(&self, filter: &TaskFilter) -> StoreFuture<'_, Vec<TaskRow>> {
        let filter = filter.clone();
        self.scan(move |connection| tables::task_rows(connection, &filter))
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> StoreFuture<'_, Vec<TaskId>> {
        let sql = "SELECT task_id FROM tasks WHERE task_id BETWEEN ?1 AND ?2 \
                   ORDER BY task_id LIMIT ?3";
        self.ids_by_prefix(sql, prefix, limit, TaskId::from_bytes)
    }

    fn task(&self, row: &TaskRow) -> StoreFuture<'_, Task> {
        let task = self.readers.query(|connection| {
            let event = |position: Option<JournalPosition>| -> rusqlite::Result<Option<Event>> {
                let Some(position) = position else { return Ok(None) };
                let sql = "SELECT body FROM events WHERE position = ?1";
                find(connection, sql, [position.0], |row| decode_json(row, 0))
            };
            let created = event(Some(row.created_position))?;
            let (result, failure) = (event(row.result_position)?, event(row.failure_position)?);
            let total = tables::task_tree(connection, row.id)?.usage;
            Ok(created.and_then(|created| row.with_texts(created, result, failure, total)))
        });
        StoreFuture::ready(task.and_then(|task| task.ok_or_else(|| missing_creation(row))))
    }

    fn task_tree(&self, task: TaskId) -> StoreFuture<'_, TaskTree> {
        self.point_read(|connection| tables::task_tree(connection, task))
    }

    fn execution(&self, id: ExecutionId) -> StoreFuture<'_, Option<AgentExecution>> {
        self.point_read(|connection| tables::execution(connection, id))
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> StoreFuture<'_, Vec<ExecutionRow>> {
        let filter = filter.clone();
        self.scan(move |connection| tables::execution_rows(connection, &filter))
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ExecutionId>> {
        let sql = "SELECT execution_id FROM executions WHERE execution_id BETWEEN ?1 AND ?2 \
                   ORDER BY execution_id LIMIT ?3";
        self.ids_by_prefix(sql, prefix, limit, ExecutionId::from_bytes)
    }

    fn sealed_input(&self, task: TaskId) -> StoreFuture<'_, Option<String>> {
        let path = self.readers.path();
        let opened = self.readers.query(|connection| tables::sealed_input(connection, task));
        StoreFuture::ready(opened.and_then(|row| match row {
            Some(row) => SealingKeys::beside(path).open(task, row).map_err(|error| {
                let place = format!("{}, the sealed input of task {task}", path.display());
                StoreError::Unreadable { place, detail: error.to_string() }
            }),
            None => Ok(None),
        }))
    }

    fn executions(&self, task: TaskId) -> StoreFuture<'_, Vec<AgentExecution>> {
        let sql = "SELECT body FROM executions \
                   WHERE task = (SELECT created_position FROM tasks WHERE task_id = ?1) \
                   ORDER BY started_position";
        self.scan(move |connection| {
            list(connection, sql, [task.as_bytes()], |row| decode_json(row, 0))
        })
    }

    fn messages(&self, task: TaskId) -> StoreFuture<'_, Vec<Message>> {
        let sql = "SELECT events.at, events.body FROM messages \
                   JOIN events ON events.position = messages.position \
                   WHERE messages.task = (SELECT created_position FROM tasks WHERE task_id = ?1) \
                   ORDER BY messages.ordinal";
        self.scan(move |connection| {
            let messages = list(connection, sql, [task.as_bytes()], |row| {
                Ok(into_message(decode_json(row, 1)?, rows::timestamp(row, 0)?))
            })?;
            Ok(messages.into_iter().flatten().collect())
        })
    }

    fn checkpoints(&self, task: TaskId) -> StoreFuture<'_, Vec<CheckpointRow>> {
        self.scan(move |connection| tables::checkpoints(connection, task))
    }

    fn spending(&self) -> StoreFuture<'_, Vec<SpendingRow>> {
        self.scan(tables::spending)
    }

    fn toggled_agents(&self) -> StoreFuture<'_, Vec<Name>> {
        self.point_read(tables::toggled_agents)
    }

    fn definition(&self, digest: &Digest) -> StoreFuture<'_, Option<String>> {
        let sql = "SELECT json FROM definitions WHERE digest = ?1";
        self.point_read(|connection| find(connection, sql, [digest.as_bytes()], |row| row.get(0)))
    }
}
