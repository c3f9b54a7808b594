//! Copies of the database: made while others go on, and put back without losing what was there.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::lock;
use super::open::{check_header, explain, io_error, log_of};
use super::rows::decode_event;
use crate::StoreError;

/// Writes a consistent copy. It appears under its name only when it is whole and on disk.
pub(super) fn to_file(
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
    remove_if_there(&unfinished)?;
    let text =
        unfinished.to_str().ok_or_else(|| failed(target, "the path must be readable as text"))?;
    let copied = connection
        .execute("VACUUM INTO ?1", [text])
        .map_err(|error| match explain(source, &error) {
            // The source was read; what could not be written is the copy.
            StoreError::NotWritable { detail, .. } => {
                StoreError::NotWritable { path: target.to_owned(), detail }
            }
            StoreError::Full { .. } => StoreError::Full { path: target.to_owned() },
            other => other,
        })
        .and_then(|_| leave_out_private(&unfinished))
        .and_then(|()| put_in_place(&unfinished, target));
    if copied.is_err() {
        remove_if_there(&unfinished)?;
    }
    copied
}

/// A copy may be carried anywhere, so what must not be seen stays behind. Tasks that need it cannot
/// go on from the copy, and say so.
fn leave_out_private(copy: &Path) -> Result<(), StoreError> {
    let emptied = Connection::open(copy).and_then(|connection| {
        connection.pragma_update(None, "secure_delete", true)?;
        connection.execute("DELETE FROM private", []).map(|_| ())
    });
    emptied.map_err(|error| explain(copy, &error))
}

/// Puts a backup in the place of the database. What was there before is kept beside it, and its
/// new path is the answer. Up to the one step that puts the backup in place nothing is changed, and
/// no process can open the database for writing meanwhile.
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
    check_whole(backup)?;
    if let Some(folder) = database.parent() {
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error.to_string()))?;
    }
    let _alone = lock::exclusive(database)?;
    let unfinished = with_suffix(database, "restoring");
    let replaced = replace(backup, &unfinished, database);
    if replaced.is_err() {
        // A part of a copy would only fill the disk.
        remove_if_there(&unfinished)?;
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
    let kept = keep_aside(database)?;
    // A reader of the old database may still have this open. It keeps what it has open; the new
    // database must not find it.
    remove_if_there(&appended(database, "-shm"))?;
    put_in_place(unfinished, database)?;
    Ok(kept)
}

fn check_whole(path: &Path) -> Result<(), StoreError> {
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
    // The pages may be in order and a text in them not.
    let mut events = connection.prepare("SELECT body FROM events").map_err(explain)?;
    let mut rows = events.query([]).map_err(explain)?;
    while let Some(row) = rows.next().map_err(explain)? {
        decode_event(row, 0).map_err(explain)?;
    }
    Ok(())
}

/// How many databases that were replaced are kept beside the one in use.
const KEPT_MAX: u32 = 1000;

/// Gives the database a second name, the first that is free, under which it stays when the backup
/// takes its own. Its log is worked in first; one that cannot be, because the database is damaged
/// or gone, is kept under the second name too.
fn keep_aside(database: &Path) -> Result<Option<PathBuf>, StoreError> {
    let free = (1..=KEPT_MAX)
        .map(|number| with_suffix(database, &format!("before-restore-{number}")))
        .find(|path| !path.exists() && !log_of(path).exists())
        .ok_or_else(|| failed(database, "there is no free name to keep it under"))?;
    let there = database.exists();
    if there {
        let busy = Connection::open(database).and_then(|connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
        });
        // Someone reads it, and its newest commits are still in the log: they must not be parted.
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
        Ok(_) | Err(_) => remove_if_there(&log)?,
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

fn remove_if_there(path: &Path) -> Result<(), StoreError> {
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
