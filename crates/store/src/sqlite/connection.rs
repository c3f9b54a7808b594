//! Opens connections, and explains why a database file cannot be opened.
//!
//! Reads the header as plain bytes first, to recognise a damaged, foreign or newer file before
//! SQLite touches it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polity_files::{FileAccess, create_file, create_folder, open_named_file};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::busy_wait::{BUSY_SECONDS_MAX, BusyWait, SQLITE_BUSY_TIMEOUT};
use super::open_files::{OpenFile, unless_open};
use super::schema::{self, APPLICATION_ID, VERSION};
use super::sealing_keys::SealingKeys;
use super::{CommitDurability, StoreAccess, file_lock, tables};
use crate::StoreError;

/// The number of log pages that starts a checkpoint. A checkpoint costs syncs of its own, and a
/// longer log spreads them over more commits.
const LOG_PAGES: u32 = 4000;

/// The maximum wait for users of older tables.
const MIGRATION_WAIT_MAX: Duration = Duration::from_secs(5);

const MIGRATION_RETRY_AFTER: Duration = Duration::from_millis(5);

/// Creates the database's folder, private to the user: it holds conversations.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    create_folder(folder, FileAccess::Private).map_err(|error| io_error(folder, &error))
}

/// Takes the writer's lock after migrating older tables. The migration runs under the exclusive
/// lock: a process of the older version would not update the new tables.
pub(super) fn lock_migrated(path: &Path, durability: CommitDurability) -> Result<File, StoreError> {
    if !file_lock::exists(path) {
        // Nothing was written here yet: leave no lock file beside a foreign database.
        check_header(path)?;
    }
    let deadline = Instant::now() + MIGRATION_WAIT_MAX;
    loop {
        let shared = file_lock::shared(path)?;
        if !is_older(check_header(path)?) {
            return Ok(shared);
        }
        drop(shared);
        match file_lock::try_exclusive(path)? {
            Some(_alone) if is_older(check_header(path)?) => drop(for_writing(path, durability)?),
            Some(_) => {}
            // Others are about to migrate the tables too, or use the older ones.
            None if Instant::now() < deadline => std::thread::sleep(MIGRATION_RETRY_AFTER),
            None => return Err(StoreError::InUse { path: path.to_owned() }),
        }
    }
}

/// True if the tables have an older version.
pub(super) fn is_older(version: u32) -> bool {
    (1..VERSION).contains(&version)
}

/// A connection that can write. It is closed before its registration is dropped.
pub(super) fn for_writing(
    path: &Path,
    durability: CommitDurability,
) -> Result<(Connection, Option<OpenFile>), StoreError> {
    // SQLite would create the file for all to read. The log and its index get the file's mode. A file
    // that exists is not opened here: closing it would drop the locks that this process has on it.
    match create_file(path, FileAccess::Private) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(io_error(path, &error));
        }
        Ok(_) | Err(_) => {}
    }
    let open = OpenFile::register(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| explain(path, &error))?;
    // SQLite silently opens a file without write permission as read-only.
    if connection.is_readonly(c"main").map_err(|error| explain(path, &error))? {
        let detail = "the file may only be read".into();
        return Err(StoreError::NotWritable { path: path.to_owned(), detail });
    }
    // Not every lock is waited for: the change to WAL mode fails at once while another process makes
    // the same change.
    let is_busy = |error: &StoreError| matches!(error, StoreError::Busy { .. });
    BusyWait::retry(path, is_busy, || prepare_writer(&mut connection, path, durability))?;
    Ok((connection, open))
}

/// Destroys the keys of inputs that were not committed, or whose tasks have ended, if a process died
/// before it could.
pub(super) fn sweep_keys(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let live = || tables::sealing_keys(connection).map_err(|error| explain(path, &error));
    SealingKeys::beside(path).sweep(live)
}

/// Refuses a newer version that is still in the log, where the header does not show it.
fn refuse_newer(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let found = schema::version(connection).map_err(|error| explain(path, &error))?;
    if found > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found, supported: VERSION });
    }
    Ok(())
}

fn prepare_writer(
    connection: &mut Connection,
    path: &Path,
    durability: CommitDurability,
) -> Result<(), StoreError> {
    connection.busy_timeout(SQLITE_BUSY_TIMEOUT).map_err(|error| explain(path, &error))?;
    refuse_newer(path, connection)?;
    configure_writer(connection, durability).map_err(|error| explain(path, &error))?;
    schema::migrate(connection, path)
}

fn configure_writer(connection: &Connection, durability: CommitDurability) -> rusqlite::Result<()> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let message = format!("this disk cannot hold a write-ahead log (mode {mode})");
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
        return Err(rusqlite::Error::SqliteFailure(code, Some(message)));
    }
    let synchronous = match durability {
        CommitDurability::Full => "FULL",
        CommitDurability::Relaxed => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // On macOS, a plain sync leaves the data in the cache of the disk.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Overwrites deleted rows: conversations of removed tasks.
    connection.pragma_update(None, "secure_delete", true)?;
    tune(connection)
}

/// The number of cached statements.
const STATEMENTS_MAX: usize = 64;

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Keeps query plans stable. Otherwise SQLite plans a statement again for other values, which
    // takes longer than the statement itself.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// A connection to read from.
pub(super) enum ReadConnection {
    /// To the database.
    File(Connection),
    /// To the database, which no other connection can use meanwhile.
    Exclusive(Connection),
    /// To an empty database in memory, while there is no file.
    Empty(Connection),
}

/// A connection that can only read.
pub(super) fn for_reading(path: &Path, access: StoreAccess) -> Result<ReadConnection, StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    if access == StoreAccess::ReadOnly && is_absent(path)? {
        return empty_database(path);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX)).map_err(explain)?;
    tune(&connection).map_err(explain)?;
    match schema::version(&connection) {
        // Another process has created the file, but not yet the tables.
        Ok(0) => empty_database(path),
        Ok(_) => refuse_newer(path, &connection).map(|()| ReadConnection::File(connection)),
        Err(error) if access == StoreAccess::ReadOnly && is_unwritable(&error) => {
            read_unwritable(path).map(ReadConnection::File)
        }
        Err(error) if access == StoreAccess::ReadOnly && is_without_space(&error) => {
            drop(connection);
            read_on_full_disk(path).map(ReadConnection::Exclusive)
        }
        Err(error) => Err(explain(error)),
    }
}

fn empty_database(path: &Path) -> Result<ReadConnection, StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let mut connection = Connection::open_in_memory().map_err(explain)?;
    schema::migrate(&mut connection, path)?;
    Ok(ReadConnection::Empty(connection))
}

/// Opens a database on a read-only disk, where a reader cannot write the index of the log. Without
/// a log, the database can be read as an immutable file.
fn read_unwritable(path: &Path) -> Result<Connection, StoreError> {
    if log_of(path).metadata().is_ok_and(|log| log.len() > 0) {
        return Err(StoreError::NotWritable {
            path: path.to_owned(),
            detail: "its log must be worked in before it can be read".into(),
        });
    }
    let uri = format!("file:{}?immutable=1", percent_encoded(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(uri, flags).map_err(|error| explain(path, &error))
}

/// Opens a database on a full disk, where a reader has no space for the index of the log. A process
/// that has the database to itself keeps the index in its memory instead. It writes nothing.
fn read_on_full_disk(path: &Path) -> Result<Connection, StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    // The lock of the only user needs a file that may be written.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX)).map_err(explain)?;
    let prepare = || {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        tune(&connection)
    };
    prepare().map_err(explain)?;
    refuse_newer(path, &connection)?;
    Ok(connection)
}

/// SQLite's write-ahead log.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn percent_encoded(path: &Path) -> String {
    use std::fmt::Write;
    let mut encoded = String::new();
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02x}");
        }
    }
    encoded
}

fn is_absent(path: &Path) -> Result<bool, StoreError> {
    match path.metadata() {
        Ok(metadata) => Ok(metadata.len() == 0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(io_error(path, &error)),
    }
}

const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The delay before a file that looks torn is read again: another process may be writing it.
const HEADER_RETRY_AFTER: Duration = Duration::from_millis(50);

/// Returns the version of the tables from the file's header; 0 for a missing or empty file.
pub(super) fn check_header(path: &Path) -> Result<u32, StoreError> {
    // Another store of this process has checked and migrated a database that it has open.
    let read = || unless_open(path, || read_header(path)).unwrap_or(Ok(VERSION));
    match read() {
        // A process that checkpoints as it ends writes the header before the rest.
        Err(StoreError::Damaged { .. }) => {
            std::thread::sleep(HEADER_RETRY_AFTER);
            read()
        }
        seen => seen,
    }
}

fn read_header(path: &Path) -> Result<u32, StoreError> {
    if is_absent(path)? {
        return Ok(0);
    }
    let damaged =
        |detail: &str| StoreError::Damaged { path: path.to_owned(), detail: detail.to_owned() };
    let mut file = open_named_file(path).map_err(|error| io_error(path, &error.into()))?;
    let mut header = [0; HEADER_BYTES];
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            return Err(damaged("it is too short to be a database"));
        }
        Err(error) => return Err(io_error(path, &error)),
    }
    if !header.starts_with(MAGIC) {
        return Err(damaged("it does not begin as a database does"));
    }
    let number = |offset: usize| {
        u32::from_be_bytes([
            header[offset],
            header[offset + 1],
            header[offset + 2],
            header[offset + 3],
        ])
    };
    let (pages, version, application_id) = (number(28), number(60), number(68));
    // Both are zero while another process creates the file.
    if application_id != APPLICATION_ID && (application_id, version) != (0, 0) {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    if version > VERSION {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: version,
            supported: VERSION,
        });
    }
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        bytes => u64::from(bytes),
    };
    let bytes = file.metadata().map_err(|error| io_error(path, &error))?.len();
    let log_bytes = log_of(path).metadata().map_or(0, |log| log.len());
    // While there is a log, missing pages may still be in it.
    if log_bytes == 0 && bytes < u64::from(pages) * page_bytes {
        return Err(damaged("its end is missing"));
    }
    Ok(version)
}

/// The codes of a database that other processes keep locked.
macro_rules! busy_codes {
    () => {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed
    };
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(busy_codes!()))
}

fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
}

/// True if the index of the log could not be written for lack of space.
fn is_without_space(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    let of_index = [
        rusqlite::ffi::SQLITE_IOERR_SHMSIZE,
        rusqlite::ffi::SQLITE_IOERR_SHMMAP,
        rusqlite::ffi::SQLITE_IOERR_SHMOPEN,
        rusqlite::ffi::SQLITE_FULL,
    ];
    code.is_some_and(|code| of_index.contains(&code))
}

pub(super) fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    let (path, detail) = (path.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::NotWritable { path, detail }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::Full { path }
        }
        _ => StoreError::Failed { path, detail },
    }
}

/// The meaning of an SQLite failure for this file.
pub(super) fn explain(path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, detail) = (path.to_owned(), error.to_string());
    if let rusqlite::Error::FromSqlConversionFailure(column, _, cause) = error {
        return StoreError::Unreadable {
            place: format!("{}, column {column}", path.display()),
            detail: cause.to_string(),
        };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged { path, detail }
        }
        Some(ErrorCode::DiskFull) => StoreError::Full { path },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::NotWritable { path, detail }
        }
        Some(busy_codes!()) => StoreError::Busy { path, seconds: BUSY_SECONDS_MAX },
        _ => StoreError::Failed { path, detail },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_and_checkpoints_reach_the_disk_on_macos() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("polity.db");
        let (connection, _open) = for_writing(&path, CommitDurability::Full).unwrap();
        let read = |pragma: &str| -> i64 {
            connection.pragma_query_value(None, pragma, |row| row.get(0)).unwrap()
        };
        assert_eq!(["fullfsync", "checkpoint_fullfsync", "synchronous"].map(read), [1, 1, 2]);
    }
}
