//! Removes tasks inside a transaction of the writer.

use std::collections::BTreeSet;

use polity_model::ids::{ExecutionId, TaskId};
use rusqlite::{Connection, params};

use super::rows::{execute, list};
use super::tables;
use crate::TaskFilter;
use crate::projection::TaskRow;
use crate::removal::{RemovalOutcome, removal_blocker};

/// Removes a unit, or returns the reason why not. All checks come before the first write.
pub(super) fn remove_unit(
    connection: &Connection,
    tasks: &[TaskId],
) -> rusqlite::Result<RemovalOutcome> {
    let unit: BTreeSet<TaskId> = tasks.iter().copied().collect();
    let mut rows = Vec::with_capacity(unit.len());
    for task in &unit {
        // Another process has removed it.
        let Some(row) = tables::task_row(connection, *task)? else { continue };
        let parent = match row.parent_task_id {
            Some(parent) => tables::task_row(connection, parent)?.map(|row| row.id),
            None => None,
        };
        let children = TaskFilter { parent: Some(*task), ..TaskFilter::default() };
        let forks = TaskFilter { forked_from: Some(*task), ..TaskFilter::default() };
        let (sub_tasks, forks) = (task_ids(connection, &children)?, task_ids(connection, &forks)?);
        if let Some(blocker) = removal_blocker(&unit, &row, parent, sub_tasks, forks) {
            return Ok(RemovalOutcome::Refused { task: *task, blocker });
        }
        rows.push(row);
    }
    let mut executions = Vec::new();
    for row in &rows {
        executions.extend(execution_ids(connection, row)?);
        delete(connection, row)?;
    }
    Ok(RemovalOutcome::Removed { tasks: rows.iter().map(|row| row.id).collect(), executions })
}

fn task_ids(connection: &Connection, filter: &TaskFilter) -> rusqlite::Result<Vec<TaskId>> {
    Ok(tables::task_rows(connection, filter)?.iter().map(|row| row.id).collect())
}

fn execution_ids(connection: &Connection, row: &TaskRow) -> rusqlite::Result<Vec<ExecutionId>> {
    let sql = "SELECT execution_id FROM executions WHERE task = ?1";
    list(connection, sql, [row.created_position.0], |row| row.get(0).map(ExecutionId::from_bytes))
}

fn delete(connection: &Connection, row: &TaskRow) -> rusqlite::Result<()> {
    let created = row.created_position.0;
    let sql = "SELECT DISTINCT unhex(pin.value ->> '$.digest') \
               FROM events, json_each(events.body, '$.pins') AS pin WHERE events.position = ?1";
    for digest in list(connection, sql, [created], |row| row.get::<_, [u8; 32]>(0))? {
        let sql = "DELETE FROM pins WHERE digest = ?1 AND created_position = ?2";
        execute(connection, sql, params![digest, created])?;
        let sql = "DELETE FROM definitions WHERE digest = ?1 \
                   AND NOT EXISTS (SELECT 1 FROM pins WHERE pins.digest = ?1)";
        execute(connection, sql, [digest])?;
    }
    let sql = "UPDATE removed SET position = max(position, (SELECT max(position) FROM events))";
    execute(connection, sql, [])?;
    for (table, column) in [
        ("messages", "task"),
        ("checkpoints", "task"),
        ("executions", "task"),
        ("sealed_inputs", "task"),
        ("tasks", "created_position"),
        ("events", "stream"),
        ("streams", "stream"),
    ] {
        execute(connection, &format!("DELETE FROM {table} WHERE {column} = ?1"), [created])?;
    }
    Ok(())
}
