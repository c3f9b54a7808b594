//! The tables, version by version. A version that was released is never edited: the next one
//! follows it.

use rusqlite::{Connection, TransactionBehavior};

/// Marks a file as ours: "POLI".
pub(super) const APPLICATION_ID: u32 = 0x504f_4c49;

/// The newest version of the tables that this program knows.
#[expect(clippy::cast_possible_truncation, reason = "there are a few")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Each entry leads from its index to the next version.
const MIGRATIONS: [&str; 6] = [
    include_str!("migrations/1_journal.sql"),
    include_str!("migrations/2_spending.sql"),
    include_str!("migrations/3_tasks_by_parent.sql"),
    include_str!("migrations/4_forks_and_pins.sql"),
    include_str!("migrations/5_short_stream_keys.sql"),
    include_str!("migrations/6_requests.sql"),
];

/// Brings the tables up to date. Several processes may try at once: the lock lets one through at a
/// time, and the others find nothing left to do.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if version(connection)? >= VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (index, migration) in (0u32..).zip(MIGRATIONS) {
        if version(&transaction)? == index {
            transaction.execute_batch(migration)?;
            transaction.pragma_update(None, "user_version", index + 1)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()?;
    // The version must be in the database file, not only in the log, because it is checked first.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// The version of the tables; 0 before there are any.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
