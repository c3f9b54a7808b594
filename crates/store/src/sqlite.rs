//! The store on disk: SQLite in WAL mode, one writer thread with group commit, a few readers.

mod backup;
mod import;
mod known;
mod lock;
mod open;
mod remove;
mod rows;
mod schema;
mod tables;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use polity_model::digest::Digest;
use polity_model::event::{Event, JournalPosition, RecordedEvent, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::{ExecutionId, TaskId};
use polity_model::message::Message;
use polity_model::name::Name;
use polity_model::task::Task;
use rusqlite::{Connection, OptionalExtension, params};

pub use backup::restore;

use crate::commit::{Commit, CommitTicket};
use crate::import::{Import, ImportError};
use crate::projection::{CheckpointRow, SpendingRow, TaskRow, into_message};
use crate::removal::Removal;
use crate::{ExecutionFilter, ExecutionRow, Header, Store, StoreError, TaskFilter, Tree};
use open::Reader;
use rows::{StreamKey, decode_event};
use writer::Writer;

/// When a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When the disk has it: survives a loss of power.
    #[default]
    Full,
    /// When the operating system has it: survives a crash of the program, and after a loss of
    /// power the newest commits may be gone, never a part of one.
    Relaxed,
}

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read and write; makes the database where there is none.
    ReadWrite(Durability),
    /// Only to read. Where there is no database, there is nothing to read.
    ReadOnly,
}

/// The store on disk.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    access: Access,
    /// Readers that are free.
    readers: Mutex<Vec<Connection>>,
    writer: Option<Writer>,
    /// Keeps the database from being replaced while this uses it. Given up last, when the writer
    /// has ended.
    _lock: Option<File>,
}

/// How many readers are kept open for the next caller; more are opened and closed as needed.
const FREE_READERS_MAX: usize = 4;

impl SqliteStore {
    /// Opens the database in this file. With [`Access::ReadWrite`] it is made where there is none,
    /// and brought up to date where it was written by an older version. A damaged, foreign or newer
    /// file is left as it is.
    pub fn open(path: &Path, access: Access) -> Result<Self, StoreError> {
        let (writer, lock) = match access {
            Access::ReadWrite(durability) => {
                open::make_folder(path)?;
                let lock = open::up_to_date(path, durability)?;
                let connection = open::for_writing(path, durability)?;
                (Some(Writer::start(connection, path.to_owned())?), Some(lock))
            }
            Access::ReadOnly => {
                let lock = lock::shared_by_reader(path)?;
                if open::is_older(open::check_header(path)?) {
                    // Whoever reads next finds the tables of this version.
                    drop(lock);
                    (None, Some(open::up_to_date(path, Durability::Full)?))
                } else {
                    (None, lock)
                }
            }
        };
        let readers = Mutex::new(Vec::new());
        Ok(Self { path: path.to_owned(), access, readers, writer, _lock: lock })
    }

    /// Writes a consistent copy of the database to a new file while others go on.
    pub fn backup(&self, target: &Path) -> Result<(), StoreError> {
        self.read(|connection| backup::to_file(connection, &self.path, target))
    }

    fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let free = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match free {
            Some(connection) => connection,
            None => match open::for_reading(&self.path, self.access)? {
                Reader::Real(connection) => connection,
                // There may be a database the next time, so this one is not kept.
                Reader::Empty(stand_in) => return query(&stand_in),
            },
        };
        let answer = query(&connection);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < FREE_READERS_MAX {
            readers.push(connection);
        }
        answer
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
        self.writer.as_ref().ok_or_else(|| StoreError::NotWritable {
            path: self.path.clone(),
            detail: "the store was opened only to be read".into(),
        })
    }

    fn query<T>(
        &self,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.read(|connection| query(connection).map_err(|error| open::explain(&self.path, &error)))
    }
}

/// An event of a stream, from its position, sequence, time and body.
fn recorded(stream: &StreamId, row: &rusqlite::Row<'_>) -> rusqlite::Result<RecordedEvent> {
    Ok(RecordedEvent {
        position: JournalPosition(row.get(0)?),
        stream: stream.clone(),
        sequence: StreamSequence(row.get(1)?),
        at: rows::timestamp(row, 2)?,
        event: decode_event(row, 3)?,
    })
}

impl Store for SqliteStore {
    fn commit(&self, commit: Commit) -> CommitTicket {
        match self.writer() {
            Ok(writer) => writer.submit(commit),
            Err(error) => CommitTicket::answered(Err(error.into())),
        }
    }

    fn commit_here(&self, commit: Commit) -> CommitTicket {
        match self.writer() {
            Ok(writer) => writer.write_here(commit),
            Err(error) => CommitTicket::answered(Err(error.into())),
        }
    }

    fn import(&self, tasks: Vec<Import>) -> Result<(), ImportError> {
        let encoded = import::encoded(tasks)?;
        let path = self.path.clone();
        self.writer()?.alone(move |connection| import::all(connection, &path, &encoded))?
    }

    fn remove(&self, units: Vec<Vec<TaskId>>) -> Result<Vec<Removal>, StoreError> {
        let path = self.path.clone();
        self.writer()?.alone(move |connection| {
            let unit = |tasks: &Vec<TaskId>| remove::unit(connection, tasks);
            units
                .iter()
                .map(unit)
                .collect::<rusqlite::Result<_>>()
                .map_err(|e| open::explain(&path, &e))
        })?
    }

    fn events(
        &self,
        stream: &StreamId,
        after: StreamSequence,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT position, sequence, at, body FROM events \
                     WHERE stream = (SELECT stream FROM streams WHERE key = ?1) \
                     AND sequence > ?2 ORDER BY sequence",
                )?
                .query_map(params![StreamKey::of(stream), after.0], |row| recorded(stream, row))?
                .collect()
        })
    }

    fn newest_events(
        &self,
        stream: &StreamId,
        limit: u32,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT position, sequence, at, body FROM events \
                     WHERE stream = (SELECT stream FROM streams WHERE key = ?1) \
                     ORDER BY sequence DESC LIMIT ?2",
                )?
                .query_map(params![StreamKey::of(stream), limit], |row| recorded(stream, row))?
                .collect()
        })
    }

    fn headers_after(&self, after: JournalPosition, limit: u32) -> Result<Vec<Header>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT position, key, sequence FROM events \
                     JOIN streams ON streams.stream = events.stream \
                     WHERE position > ?1 ORDER BY position LIMIT ?2",
                )?
                .query_map(params![after.0, limit], |row| {
                    Ok(Header {
                        position: JournalPosition(row.get(0)?),
                        stream: row.get::<_, StreamKey>(1)?.stream()?,
                        sequence: StreamSequence(row.get(2)?),
                    })
                })?
                .collect()
        })
    }

    fn last_position(&self) -> Result<JournalPosition, StoreError> {
        self.query(tables::last_position)
    }

    fn task_row(&self, id: TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.query(|connection| tables::task_row(connection, id))
    }

    fn task_rows(&self, filter: &TaskFilter) -> Result<Vec<TaskRow>, StoreError> {
        self.query(|connection| tables::task_rows(connection, filter))
    }

    fn task_ids_by_prefix(&self, prefix: &str, limit: u32) -> Result<Vec<TaskId>, StoreError> {
        // Ids are kept as bytes, so a prefix of the text is a range of bytes.
        let Some((low, high)) = rows::id_range(prefix) else { return Ok(Vec::new()) };
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT task_id FROM tasks WHERE task_id BETWEEN ?1 AND ?2 \
                     ORDER BY task_id LIMIT ?3",
                )?
                .query_map(params![low, high, limit], |row| Ok(TaskId::from_bytes(row.get(0)?)))?
                .collect()
        })
    }

    fn task(&self, row: &TaskRow) -> Result<Task, StoreError> {
        let task = self.query(|connection| {
            let event = |position: Option<JournalPosition>| -> rusqlite::Result<Option<Event>> {
                let Some(position) = position else { return Ok(None) };
                connection
                    .prepare_cached("SELECT body FROM events WHERE position = ?1")?
                    .query_row([position.0], |row| decode_event(row, 0))
                    .optional()
            };
            let created = event(Some(row.created_position))?;
            let (result, failure) = (event(row.result_position)?, event(row.failure_position)?);
            let total = tables::tree(connection, row.id)?.usage;
            Ok(created.and_then(|created| row.with_texts(created, result, failure, total)))
        })?;
        task.ok_or_else(|| StoreError::Unreadable {
            place: format!("position {}", row.created_position.0),
            detail: format!("the creation of task {} is not there", row.id),
        })
    }

    fn tree(&self, task: TaskId) -> Result<Tree, StoreError> {
        self.query(|connection| tables::tree(connection, task))
    }

    fn execution(&self, id: ExecutionId) -> Result<Option<AgentExecution>, StoreError> {
        self.query(|connection| tables::execution(connection, id))
    }

    fn execution_rows(&self, filter: &ExecutionFilter) -> Result<Vec<ExecutionRow>, StoreError> {
        self.query(|connection| tables::executions(connection, filter))
    }

    fn execution_ids_by_prefix(
        &self,
        prefix: &str,
        limit: u32,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let Some((low, high)) = rows::id_range(prefix) else { return Ok(Vec::new()) };
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT execution_id FROM executions WHERE execution_id BETWEEN ?1 AND ?2 \
                     ORDER BY execution_id LIMIT ?3",
                )?
                .query_map(params![low, high, limit], |row| {
                    Ok(ExecutionId::from_bytes(row.get(0)?))
                })?
                .collect()
        })
    }

    fn sealed_input(&self, task: TaskId) -> Result<Option<String>, StoreError> {
        self.query(|connection| tables::sealed_input(connection, task))
    }

    fn executions(&self, task: TaskId) -> Result<Vec<AgentExecution>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT body FROM executions \
                     WHERE task = (SELECT created_position FROM tasks WHERE task_id = ?1) \
                     ORDER BY started_position",
                )?
                .query_map([task.as_bytes()], |row| rows::decode_json(row, 0))?
                .collect()
        })
    }

    fn messages(&self, task: TaskId) -> Result<Vec<Message>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached(
                    "SELECT events.at, events.body FROM messages \
                     JOIN events ON events.position = messages.position \
                     WHERE messages.task = (SELECT created_position FROM tasks WHERE task_id = ?1) \
                     ORDER BY messages.ordinal",
                )?
                .query_map([task.as_bytes()], |row| {
                    Ok(into_message(decode_event(row, 1)?, rows::timestamp(row, 0)?))
                })?
                .filter_map(Result::transpose)
                .collect()
        })
    }

    fn checkpoints(&self, task: TaskId) -> Result<Vec<CheckpointRow>, StoreError> {
        self.query(|connection| tables::checkpoints(connection, task))
    }

    fn spending(&self) -> Result<Vec<SpendingRow>, StoreError> {
        self.query(tables::spending)
    }

    fn switched_agents(&self) -> Result<Vec<Name>, StoreError> {
        self.query(tables::switched_agents)
    }

    fn definition(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        self.query(|connection| {
            connection
                .prepare_cached("SELECT json FROM definitions WHERE digest = ?1")?
                .query_row([digest.as_bytes()], |row| row.get(0))
                .optional()
        })
    }
}
