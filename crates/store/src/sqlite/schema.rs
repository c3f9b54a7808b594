//! The tables, version by version. A version that was released is never edited: the next one
//! follows it.

use std::path::Path;

use polity_model::event::JournalPosition;
use polity_model::ids::TaskId;
use rusqlite::{Connection, TransactionBehavior};

use super::connection::explain;
use super::rows::list;
use super::sealing_keys::{SealedBatch, SealingKeys};
use super::tables;
use crate::StoreError;

/// Marks a file as ours: "POLI".
pub(super) const APPLICATION_ID: u32 = 0x504f_4c49;

/// The newest version of the tables that this program knows.
#[expect(clippy::cast_possible_truncation, reason = "there are a few")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Each entry leads from its index to the next version.
const MIGRATIONS: [&str; 9] = [
    include_str!("migrations/1_journal.sql"),
    include_str!("migrations/2_spending.sql"),
    include_str!("migrations/3_tasks_by_parent.sql"),
    include_str!("migrations/4_forks_and_pins.sql"),
    include_str!("migrations/5_short_stream_keys.sql"),
    include_str!("migrations/6_requests.sql"),
    include_str!("migrations/7_sealed_inputs.sql"),
    include_str!("migrations/8_unknown_usage.sql"),
    include_str!("migrations/9_map_items.sql"),
];

/// The version that encrypts the sealed inputs.
const SEALED_VERSION: u32 = 7;

/// Brings the tables up to date. Several processes may try at once: the lock lets one through at a
/// time, and the others find nothing left to do.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| explain(path, &error);
    let before = version(connection).map_err(failed)?;
    if before >= VERSION {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Held until the commit, so that no process removes the new keys.
    let mut sealed = SealedBatch::default();
    for (index, migration) in (0u32..).zip(MIGRATIONS) {
        if version(&transaction).map_err(failed)? == index {
            transaction.execute_batch(migration).map_err(failed)?;
            if index + 1 == SEALED_VERSION {
                sealed = seal_plain_inputs(&transaction, path)?;
            }
            transaction.pragma_update(None, "user_version", index + 1).map_err(failed)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    drop(sealed);
    // The version must be in the database file, not only in the log, because it is checked first. The
    // log of an older version may hold inputs that were not encrypted, so it is emptied.
    let mode = if before == 0 { "PASSIVE" } else { "TRUNCATE" };
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&sql, [], |_| Ok(())).map_err(failed)
}

/// Encrypts the inputs of a version that stored them as they were.
fn seal_plain_inputs(connection: &Connection, path: &Path) -> Result<SealedBatch, StoreError> {
    let failed = |error: rusqlite::Error| explain(path, &error);
    let sql = "SELECT task, task_id, text FROM private \
               JOIN tasks ON tasks.created_position = private.task";
    let rows: Vec<(u64, [u8; 16], String)> =
        list(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .map_err(failed)?;
    let inputs = rows.iter().enumerate();
    let sealed = SealingKeys::beside(path)
        .seal_all(inputs.map(|(index, row)| (index, TaskId::from_bytes(row.1), &*row.2)));
    for (index, (task, ..)) in rows.iter().enumerate() {
        if let Some(row) = sealed.row(index) {
            let row = row.as_ref().map_err(Clone::clone)?;
            tables::insert_sealed_input(connection, JournalPosition(*task), row).map_err(failed)?;
        }
    }
    connection.execute_batch("DROP TABLE private").map_err(failed)?;
    Ok(sealed)
}

/// The version of the tables; 0 before there are any.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
