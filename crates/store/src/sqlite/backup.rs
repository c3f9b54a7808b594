//! Backup and restore of the database file.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use polity_files::{FileAccess, RegularFileError, create_file, open_named_file, sync_name};
use polity_model::event::Event;
use rusqlite::{Connection, OpenFlags};

use super::connection::{check_header, explain, io_error, log_of, make_folder};
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
    let text =
        unfinished.to_str().ok_or_else(|| failed(target, "the path must be readable as text"))?;
    remove_if_exists(&unfinished)?;
    // SQLite fills an empty file, and would create a new one for all to read.
    create_file(&unfinished, FileAccess::Private).map_err(|error| io_error(target, &error))?;
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

/// Deletes the sealed inputs. They are encrypted, and the copy has no keys, so not even an unfinished
/// copy discloses them. Tasks that need them cannot resume from a copy.
fn delete_sealed_inputs(copy: &Path) -> Result<(), StoreError> {
    let emptied = Connection::open(copy).and_then(|connection| {
        connection.pragma_update(None, "secure_delete", true)?;
        connection.execute("DELETE FROM sealed_inputs", []).map(|_| ())
    });
    emptied.map_err(|error| explain(copy, &error))
}

/// Replaces the database with a backup. Returns the path under which the replaced database is
/// kept. No process can open the database meanwhile. The database is the old or the new one,
/// wherever the process dies: the final rename is the only change.
pub fn restore(backup: &Path, database: &Path) -> Result<Option<PathBuf>, StoreError> {
    expect_file(backup)?;
    check_header(backup)?;
    if log_of(backup).metadata().is_ok_and(|log| log.len() > 0) {
        let detail =
            "a part of it is in the log beside it; a whole copy is made by `polity backup`";
        return Err(failed(backup, detail));
    }
    check_content(backup)?;
    make_folder(database)?;
    let _lock = file_lock::exclusive(database)?;
    let unfinished = with_suffix(database, "restoring");
    let replaced = replace(backup, &unfinished, database, |_| {});
    if replaced.is_err() {
        // A partial copy only fills the disk.
        remove_if_exists(&unfinished)?;
    }
    replaced
}

/// Fails if there is no backup, or something else than a file, such as a FIFO.
fn expect_file(backup: &Path) -> Result<(), StoreError> {
    match open_named_file(backup) {
        Ok(_) => Ok(()),
        Err(RegularFileError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            Err(StoreError::Missing { path: backup.to_owned() })
        }
        Err(error) => Err(io_error(backup, &error.into())),
    }
}

/// The steps of a restore, in order. A test looks at the files after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestoreStep {
    /// The backup is copied beside the database, durably.
    Copied,
    /// The log of the database is worked in, unless the database is damaged.
    Checkpointed,
    /// The database is kept under another name, and so is a log that is not worked in.
    Kept,
    /// The log and its index are removed.
    LogRemoved,
    /// The copy has the name of the database.
    Replaced,
}

fn replace(
    backup: &Path,
    unfinished: &Path,
    database: &Path,
    mut after: impl FnMut(RestoreStep),
) -> Result<Option<PathBuf>, StoreError> {
    remove_if_exists(unfinished)?;
    copy_durably(backup, unfinished).map_err(|error| io_error(unfinished, &error))?;
    after(RestoreStep::Copied);
    checkpoint(database)?;
    after(RestoreStep::Checkpointed);
    let kept = keep_replaced(database)?;
    after(RestoreStep::Kept);
    // The new database must not find them. A log with content is kept under another name.
    remove_if_exists(&log_of(database))?;
    remove_if_exists(&appended(database, "-shm"))?;
    after(RestoreStep::LogRemoved);
    put_in_place(unfinished, database)?;
    after(RestoreStep::Replaced);
    Ok(kept)
}

/// Copies a file to a new, private one.
fn copy_durably(from: &Path, to: &Path) -> io::Result<()> {
    let mut copy = create_file(to, FileAccess::Private)?;
    io::copy(&mut open_named_file(from)?, &mut copy)?;
    copy.sync_all()
}

/// Works the log into the database. A damaged, empty or foreign database keeps its log.
fn checkpoint(database: &Path) -> Result<(), StoreError> {
    if !matches!(check_header(database), Ok(1..)) {
        return Ok(());
    }
    let busy = Connection::open(database).and_then(|connection| {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
    });
    match busy.map_err(|error| explain(database, &error)) {
        // A reader has the database open, and the newest commits are only in the log.
        Ok(true) => Err(StoreError::InUse { path: database.to_owned() }),
        Ok(false) | Err(StoreError::Damaged { .. }) => Ok(()),
        Err(error) => Err(error),
    }
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

/// Links the database under the first free name, durably. A log with content, which is that of a
/// damaged or missing database, is linked beside it.
fn keep_replaced(database: &Path) -> Result<Option<PathBuf>, StoreError> {
    let free = (1..=REPLACED_MAX)
        .map(|number| with_suffix(database, &format!("before-restore-{number}")))
        .find(|path| !path.exists() && !log_of(path).exists())
        .ok_or_else(|| failed(database, "there is no free name to keep it under"))?;
    let keep = |from: &Path, to: &Path| {
        fs::hard_link(from, to)
            .or_else(|_| copy_durably(from, to))
            .map_err(|error| io_error(to, &error))
    };
    let log = log_of(database);
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        keep(&log, &log_of(&free))?;
    }
    let there = database.exists();
    if there {
        keep(database, &free)?;
    }
    sync_name(&free).map_err(|error| io_error(&free, &error))?;
    Ok(there.then_some(free))
}

/// Renames a complete file, durably.
fn put_in_place(unfinished: &Path, target: &Path) -> Result<(), StoreError> {
    File::open(unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(unfinished, target))
        .and_then(|()| sync_name(target))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommitDurability, SqliteStore, Store, StoreAccess};

    const OLD_POSITION: u64 = 41;

    fn open(path: &Path) -> SqliteStore {
        SqliteStore::open(path, StoreAccess::ReadWrite(CommitDurability::Full)).unwrap()
    }

    fn copy_folder(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }

    /// A backup of an empty database, and a database of a killed process: its newest commit is only
    /// in the log.
    fn killed_home(root: &Path) -> (PathBuf, PathBuf) {
        let (live, killed) = (root.join("live"), root.join("killed"));
        let (database, backup) = (live.join("polity.db"), root.join("backup.db"));
        let store = open(&database);
        store.backup(&backup).unwrap();
        let other = Connection::open(&database).unwrap();
        other.execute("UPDATE removed SET position = ?1", [OLD_POSITION]).unwrap();
        copy_folder(&live, &killed);
        (killed.join("polity.db"), backup)
    }

    /// Restores, and copies the folder after each step.
    fn restore_in_steps(
        root: &Path,
        database: &Path,
        backup: &Path,
    ) -> Vec<(RestoreStep, PathBuf)> {
        let mut steps = Vec::new();
        let unfinished = with_suffix(database, "restoring");
        replace(backup, &unfinished, database, |step| {
            let copy = root.join(format!("{step:?}"));
            copy_folder(database.parent().unwrap(), &copy);
            steps.push((step, copy.join("polity.db")));
        })
        .unwrap();
        steps
    }

    #[test]
    fn restore_killed_after_any_step_leaves_the_old_or_the_new_database() {
        let root = tempfile::tempdir().unwrap();
        let (database, backup) = killed_home(root.path());
        let steps = restore_in_steps(root.path(), &database, &backup);
        assert_eq!(steps.len(), 5);
        for (step, copy) in steps {
            let expected = if step == RestoreStep::Replaced { 0 } else { OLD_POSITION };
            assert_eq!(open(&copy).last_position().wait().unwrap().0, expected, "{step:?}");
            // The next restore is not hindered by the leftovers.
            assert!(restore(&backup, &copy).is_ok(), "{step:?}");
            assert_eq!(open(&copy).last_position().wait().unwrap().0, 0, "{step:?}");
        }
    }

    #[test]
    fn damaged_database_and_its_log_stay_together_after_any_step() {
        let root = tempfile::tempdir().unwrap();
        let (database, backup) = killed_home(root.path());
        fs::write(&database, "junk").unwrap();
        let log = fs::read(log_of(&database)).unwrap();
        for (step, copy) in restore_in_steps(root.path(), &database, &backup) {
            let pair = |path: &Path| {
                fs::read(path).is_ok_and(|bytes| bytes == b"junk")
                    && fs::read(log_of(path)).is_ok_and(|bytes| bytes == log)
            };
            let is_whole = pair(&copy) || pair(&with_suffix(&copy, "before-restore-1"));
            assert!(is_whole, "{step:?}");
        }
    }
}
