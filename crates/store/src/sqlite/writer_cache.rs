//! The writer's cache: heads of task streams and digests of stored definitions.
//!
//! A running task commits often, and its row and newest sequence are those that this process wrote
//! last, unless another process wrote in between. SQLite reports that cheaply; the cache is then
//! cleared.

use std::collections::{HashMap, HashSet};

use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::TaskId;
use rusqlite::Connection;

use super::rows::StreamKey;
use super::tables;
use crate::projection::TaskRow;

/// The maximum number of cached heads; one more clears the cache.
const HEADS_MAX: usize = 4096;

/// The maximum number of cached digests; one more clears them.
const DEFINITIONS_MAX: usize = 4096;

/// The newest state of a stream.
#[derive(Debug, Default)]
pub(super) struct StreamHead {
    /// The position of its first event, if it has one.
    pub(super) first_position: Option<JournalPosition>,
    /// The sequence of its newest event.
    pub(super) sequence: StreamSequence,
    /// The task's row, if this is the stream of a task.
    pub(super) row: Option<TaskRow>,
    /// The execution that changed last, if cached.
    pub(super) execution: Option<AgentExecution>,
}

#[derive(Debug, Default)]
pub(super) struct WriterCache {
    heads: HashMap<TaskId, StreamHead>,
    /// Definitions in the database.
    definitions: HashSet<Digest>,
    /// SQLite's counter of writes by other connections.
    data_version: i64,
}

impl WriterCache {
    /// Clears the cache if another connection wrote. Call it inside the transaction, when no other
    /// can write.
    pub(super) fn clear_if_others_wrote(
        &mut self,
        connection: &Connection,
    ) -> rusqlite::Result<()> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        if version != self.data_version {
            self.clear();
            self.data_version = version;
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.heads.clear();
        self.definitions.clear();
    }

    /// Caches a definition. Returns true if it was not cached.
    pub(super) fn insert_definition(&mut self, definition: &Digest) -> bool {
        if self.definitions.len() >= DEFINITIONS_MAX {
            self.definitions.clear();
        }
        self.definitions.insert(*definition)
    }

    /// Takes the head out of the cache, or reads it. A writer that succeeds puts the new one back.
    pub(super) fn take_head(
        &mut self,
        connection: &Connection,
        stream: &StreamId,
        key: &StreamKey,
    ) -> rusqlite::Result<StreamHead> {
        if let StreamId::Task(id) = stream
            && let Some(head) = self.heads.remove(id)
        {
            return Ok(head);
        }
        let Some((first_position, sequence)) = tables::stream(connection, key)? else {
            return Ok(StreamHead::default());
        };
        let row = match stream {
            StreamId::Task(id) => tables::task_row(connection, *id)?,
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        };
        Ok(StreamHead { first_position: Some(first_position), sequence, row, execution: None })
    }

    pub(super) fn put_head(&mut self, stream: &StreamId, head: StreamHead) {
        if let StreamId::Task(id) = stream {
            if self.heads.len() >= HEADS_MAX {
                self.clear();
            }
            self.heads.insert(*id, head);
        }
    }
}
