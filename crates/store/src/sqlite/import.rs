//! Writes imported tasks inside a transaction of the writer.

use std::path::Path;

use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence};
use rusqlite::{Connection, params};

use super::connection::explain;
use super::rows::{StreamKey, micros};
use super::tables;
use crate::StoreError;
use crate::import::{ImportError, TaskImport};
use crate::projection::ProjectionChanges;

/// Encodes the events on the calling thread, which saves the writer's time.
pub(super) fn encode(
    tasks: Vec<TaskImport>,
) -> Result<Vec<(TaskImport, Vec<String>)>, ImportError> {
    let encode = |import: TaskImport| {
        let text = |(index, (_, event)): (usize, &(_, Event))| {
            serde_json::to_string(event).map_err(|error| ImportError::Illegal {
                task: import.task,
                sequence: StreamSequence(index as u64 + 1),
                reason: format!("{} cannot be written: {error}", event.label()),
            })
        };
        let texts = import.events.iter().enumerate().map(text).collect::<Result<_, _>>()?;
        Ok((import, texts))
    };
    tasks.into_iter().map(encode).collect()
}

/// Writes tasks, all or none: all checks come before the first write.
pub(super) fn write_all(
    connection: &Connection,
    path: &Path,
    tasks: &[(TaskImport, Vec<String>)],
) -> Result<(), ImportError> {
    let failed = |error: rusqlite::Error| ImportError::Store(explain(path, &error));
    let mut next = tables::next_position(connection).map_err(failed)?;
    let (mut checked, mut imported) = (Vec::with_capacity(tasks.len()), Vec::new());
    for (import, texts) in tasks {
        let key = StreamKey::of(&StreamId::Task(import.task));
        if tables::stream(connection, &key).map_err(failed)?.is_some() {
            return Err(ImportError::Exists { task: import.task });
        }
        let is_taken = |id| -> Result<bool, StoreError> {
            let found = tables::execution(connection, id).map_err(|e| explain(path, &e))?;
            Ok(found.is_some())
        };
        let changes = import.changes(next, is_taken)?;
        if let Some(origin) = changes.origin()
            && !imported.contains(&origin)
            && tables::task_row(connection, origin).map_err(failed)?.is_none()
        {
            return Err(import.orphaned(origin));
        }
        imported.push(import.task);
        checked.push((import, texts, key, next, changes));
        next = next.plus(import.events.len());
    }
    for (import, texts, key, first, changes) in &checked {
        write(connection, import, texts, key, *first, changes).map_err(failed)?;
    }
    Ok(())
}

fn write(
    connection: &Connection,
    import: &TaskImport,
    texts: &[String],
    key: &StreamKey,
    first: JournalPosition,
    changes: &ProjectionChanges,
) -> rusqlite::Result<()> {
    tables::insert_stream(connection, first, key)?;
    let mut at = None;
    for (index, ((happened, _), text)) in import.events.iter().zip(texts).enumerate() {
        at.get_or_insert(*happened);
        let (position, sequence) = (first.plus(index).0, index as u64 + 1);
        tables::insert_event(
            connection,
            params![position, first.0, sequence, micros(*happened), text],
        )?;
    }
    if let Some(at) = at {
        // Its sealed input, if it had one, is not part of an archive.
        tables::write_changes(connection, None, changes, first, at)?;
    }
    import
        .definitions
        .iter()
        .try_for_each(|definition| tables::insert_definition(connection, definition))
}
