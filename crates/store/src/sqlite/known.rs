//! What the writer knows without asking the database: the heads of tasks and the definitions that it
//! wrote itself.
//!
//! A task that is at work commits again and again, and its row and newest sequence are what this
//! process wrote last, unless another process wrote in between. SQLite says cheaply whether one
//! did, and then everything is forgotten.

use std::collections::{HashMap, HashSet};

use polity_model::digest::Digest;
use polity_model::event::{JournalPosition, StreamId, StreamSequence};
use polity_model::execution::AgentExecution;
use polity_model::ids::TaskId;
use rusqlite::Connection;

use super::rows::StreamKey;
use super::tables;
use crate::projection::TaskRow;

/// How many tasks are remembered; with one more, all are forgotten.
const HEADS_MAX: usize = 4096;

/// How many definitions are remembered; with one more, all are forgotten.
const DEFINITIONS_MAX: usize = 4096;

/// The newest of a stream.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Where it begins, if it has begun.
    pub(super) begins: Option<JournalPosition>,
    /// The sequence of its newest event.
    pub(super) sequence: StreamSequence,
    /// The task's row, where the stream is a task's and has begun.
    pub(super) row: Option<TaskRow>,
    /// The execution that moved last, if it is remembered.
    pub(super) execution: Option<AgentExecution>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    heads: HashMap<TaskId, Head>,
    /// Definitions that are in the database.
    definitions: HashSet<Digest>,
    /// Changes whenever another connection has written.
    data_version: i64,
}

impl Known {
    /// Must be called inside the transaction, when no one else can write any more.
    pub(super) fn forget_if_others_wrote(
        &mut self,
        connection: &Connection,
    ) -> rusqlite::Result<()> {
        let version = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        if version != self.data_version {
            self.forget();
            self.data_version = version;
        }
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.heads.clear();
        self.definitions.clear();
    }

    /// Whether it is not known that this definition is in the database. From now on it is.
    pub(super) fn is_new(&mut self, definition: &Digest) -> bool {
        if self.definitions.len() >= DEFINITIONS_MAX {
            self.definitions.clear();
        }
        self.definitions.insert(*definition)
    }

    /// Takes the head out: whoever changes the stream puts the new one back, and where that fails
    /// the next one asks the database.
    pub(super) fn head(
        &mut self,
        connection: &Connection,
        stream: &StreamId,
        key: &StreamKey,
    ) -> rusqlite::Result<Head> {
        if let StreamId::Task(id) = stream
            && let Some(head) = self.heads.remove(id)
        {
            return Ok(head);
        }
        let Some((begins, sequence)) = tables::stream(connection, key)? else {
            return Ok(Head::default());
        };
        let row = match stream {
            StreamId::Task(id) => tables::task_row(connection, *id)?,
            StreamId::Session(_) | StreamId::Schedule(_) | StreamId::Agent(_) => None,
        };
        Ok(Head { begins: Some(begins), sequence, row, execution: None })
    }

    pub(super) fn put(&mut self, stream: &StreamId, head: Head) {
        if let StreamId::Task(id) = stream {
            if self.heads.len() >= HEADS_MAX {
                self.forget();
            }
            self.heads.insert(*id, head);
        }
    }
}
