//! Backup and restore of the database file.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use polity_model::event::Event;
use rusqlite::{Connection, OpenFlags};

use super::connection::{check_header, explain, io_error, log_of};
use super::file_lock;
use super::rows::decode_json;
use crate::StoreError;

/// Writes a consistent copy. It gets its name only when it is complete and durable.
pub(super) fn write_copy(
    connection: &Connection,
    source: &Path,
    target: &Path,
) -> Result<(), StoreError> {
    if target.exists() {
        return Err(StoreError::Exists { path: target.to_owned() });
    }
    if let Some(folder) = target.parent()
        && !folder.as_os_str().is_empty()
        && !folder.is_dir()
    {
        return Err(StoreError::Missing { path: folder.to_owned() });
    }
    let unfinished = with_suffix(target, "unfinished");
    remove_if_exists(&unfinished)?;
    let text =
        unfinished.to_str().ok_or_else(|| failed(target, "the path must be readable as text"))?;
    let copied = connection
        .execute("VACUUM INTO ?1", [text])
        .map_err(|error| match explain(source, &error) {
            // The source is readable, so the failure is that of the copy.
            StoreError::NotWritable { detail, .. } => {
                StoreError::NotWritable { path: target.to_owned(), detail }
            }
            StoreError::Full { .. } => StoreError::Full { path: target.to_owned() },
            other => other,
        })
        .and_then(|_| delete_sealed_inputs(&unfinished))
        .and_then(|()| put_in_place(&unfinished, target));
    if copied.is_err() {
        remove_if_exists(&unfinished)?;
    }
    copied
}

/// Deletes the sealed inputs: a copy may go anywhere. Tasks that need them cannot resume from it.
fn delete_sealed_inputs(copy: &Path) -> Result<(), StoreError> {
    let emptied = Connection::open(copy).and_then(|connection| {
        connection.pragma_update(None, "secure_delete", true)?;
        connection.execute("DELETE FROM private", []).map(|_| ())
    });
    emptied.map_err(|error| explain(copy, &error))
}

/// Replaces the database with a backup. Returns the path under which the replaced database is
/// kept. Nothing changes before the final rename, and no process can open the database for writing
/// meanwhile.
pub fn restore(backup: &Path, database: &Path) -> Result<Option<PathBuf>, StoreError> {
    if !backup.is_file() {
        return Err(StoreError::Missing { path: backup.to_owned() });
    }
    check_header(backup)?;
    if log_of(backup).metadata().is_ok_and(|log| log.len() > 0) {
        let detail =
            "a part of it is in the log beside it; a whole copy is made by `polity backup`";
        return Err(failed(backup, detail));
    }
    check_content(backup)?;
    if let Some(folder) = database.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error.to_string()))?;
    }
    let _lock = file_lock::exclusive(database)?;
    let unfinished = with_suffix(database, "restoring");
    let replaced = replace(backup, &unfinished, database);
    if replaced.is_err() {
        // A partial copy only fills the disk.
        remove_if_exists(&unfinished)?;
    }
    replaced
}

fn replace(
    backup: &Path,
    unfinished: &Path,
    database: &Path,
) -> Result<Option<PathBuf>, StoreError> {
    fs::copy(backup, unfinished)
        .and_then(|_| File::open(unfinished)?.sync_all())
        .map_err(|error| io_error(unfinished, &error))?;
    let kept = keep_replaced(database)?;
    // A reader of the old database may still have this open. The new database must not find it.
    remove_if_exists(&appended(database, "-shm"))?;
    put_in_place(unfinished, database)?;
    Ok(kept)
}

fn check_content(path: &Path) -> Result<(), StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(explain)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
    let tables: u32 = connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'events'", [], |row| row.get(0))
        .map_err(explain)?;
    if verdict != "ok" {
        return Err(StoreError::Damaged { path: path.to_owned(), detail: verdict });
    }
    if tables == 0 {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    // Intact pages can still contain an invalid event.
    let mut events = connection.prepare("SELECT body FROM events").map_err(explain)?;
    let mut rows = events.query([]).map_err(explain)?;
    while let Some(row) = rows.next().map_err(explain)? {
        decode_json::<Event>(row, 0).map_err(explain)?;
    }
    Ok(())
}

/// The maximum number of replaced databases that are kept.
const REPLACED_MAX: u32 = 1000;

/// Links the database under the first free name, after a checkpoint of its log. If the checkpoint
/// is impossible, because the database is damaged or missing, the log is kept under that name too.
fn keep_replaced(database: &Path) -> Result<Option<PathBuf>, StoreError> {
    let free = (1..=REPLACED_MAX)
        .map(|number| with_suffix(database, &format!("before-restore-{number}")))
        .find(|path| !path.exists() && !log_of(path).exists())
        .ok_or_else(|| failed(database, "there is no free name to keep it under"))?;
    let there = database.exists();
    if there {
        let busy = Connection::open(database).and_then(|connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        // A reader has the database open, and the newest commits are only in the log.
        if busy == Ok(true) {
            return Err(StoreError::InUse { path: database.to_owned() });
        }
        fs::hard_link(database, &free)
            .or_else(|_| fs::copy(database, &free).map(|_| ()))
            .map_err(|error| io_error(&free, &error))?;
    }
    let log = log_of(database);
    match log.metadata() {
        Ok(metadata) if metadata.len() > 0 => {
            fs::rename(&log, log_of(&free)).map_err(|error| io_error(&log, &error))?;
        }
        Ok(_) | Err(_) => remove_if_exists(&log)?,
    }
    Ok(there.then_some(free))
}

fn put_in_place(unfinished: &Path, target: &Path) -> Result<(), StoreError> {
    File::open(unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(unfinished, target))
        .and_then(|()| match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            Some(_) | None => Ok(()),
        })
        .map_err(|error| failed(target, &error.to_string()))
}

fn remove_if_exists(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, &error.to_string())),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    appended(path, &format!(".{suffix}"))
}

fn appended(path: &Path, text: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(text);
    name.into()
}

fn failed(path: &Path, detail: &str) -> StoreError {
    StoreError::Failed { path: path.to_owned(), detail: detail.to_owned() }
}
