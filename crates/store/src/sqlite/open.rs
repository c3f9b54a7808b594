//! Opening a database file, and saying what is wrong with one that cannot be opened.
//!
//! The header is read as plain bytes first, so that a damaged, foreign or newer file is recognised
//! before SQLite touches it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::schema::{self, APPLICATION_ID, VERSION};
use super::{Access, Durability, lock};
use crate::StoreError;

/// How long to wait for another process to finish its transaction.
pub(super) const BUSY_SECONDS_MAX: u64 = 10;

/// How many pages of the log pile up before they are moved into the database: a checkpoint costs
/// syncs of its own, and a longer log spreads them over more commits.
const LOG_PAGES: u32 = 4000;

/// Makes the database's folder, which no one else may look into: it holds what people and models
/// have said.
pub(super) fn make_folder(path: &Path) -> Result<(), StoreError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder).map_err(|error| io_error(folder, &error))
}

/// Takes the lock that a writer holds, once the tables are of this program's version. Rebuilding
/// the tables of an older version is done alone: a process of that version that went on writing
/// would leave the new ones behind.
pub(super) fn up_to_date(path: &Path, durability: Durability) -> Result<File, StoreError> {
    if !lock::exists(path) {
        // No one has been here before, and nothing is left beside a file that is not ours.
        check_header(path)?;
    }
    let shared = lock::shared(path)?;
    if !is_older(check_header(path)?) {
        return Ok(shared);
    }
    drop(shared);
    let alone = lock::exclusive(path)?;
    if is_older(check_header(path)?) {
        drop(for_writing(path, durability)?);
    }
    drop(alone);
    lock::shared(path)
}

/// Whether there are tables, and they are of an older version.
pub(super) fn is_older(version: u32) -> bool {
    (1..VERSION).contains(&version)
}

pub(super) fn for_writing(path: &Path, durability: Durability) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(path, flags).map_err(|error| explain(path, &error))?;
    // SQLite opens what it may not write as if only reading had been asked for.
    if connection.is_readonly(c"main").map_err(|error| explain(path, &error))? {
        let detail = "the file may only be read".into();
        return Err(StoreError::NotWritable { path: path.to_owned(), detail });
    }
    refuse_newer(path, &connection)?;
    let deadline = Instant::now() + Duration::from_secs(BUSY_SECONDS_MAX);
    loop {
        match prepare_writer(&mut connection, durability) {
            // The change to WAL mode fails at once, without waiting, while another process makes
            // the same change: both have just created the file.
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(explain(path, &error)),
            Ok(()) => return Ok(connection),
        }
    }
}

/// The version may have got only as far as the log, where the header does not show it yet.
fn refuse_newer(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let found = schema::version(connection).map_err(|error| explain(path, &error))?;
    if found > VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found, supported: VERSION });
    }
    Ok(())
}

fn prepare_writer(connection: &mut Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        let message = format!("this disk cannot hold a write-ahead log (mode {mode})");
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ERROR);
        return Err(rusqlite::Error::SqliteFailure(code, Some(message)));
    }
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Relaxed => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // What is deleted is gone: secrets that a task was given are.
    connection.pragma_update(None, "secure_delete", true)?;
    tune(connection)?;
    schema::migrate(connection)
}

/// How many statements are kept ready.
const STATEMENTS_MAX: usize = 64;

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Otherwise SQLite plans a statement anew whenever it is given other values, which takes longer
    // than the statement itself.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// A connection to read from.
pub(super) enum Reader {
    /// To the database.
    Real(Connection),
    /// To an empty one in memory, which stands in where there is no database yet.
    Empty(Connection),
}

/// A connection that can only read.
pub(super) fn for_reading(path: &Path, access: Access) -> Result<Reader, StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    if access == Access::ReadOnly && is_absent(path)? {
        return stand_in(path);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(explain)?;
    connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX)).map_err(explain)?;
    tune(&connection).map_err(explain)?;
    match schema::version(&connection) {
        // Another process has made the file and is about to make the tables.
        Ok(0) => stand_in(path),
        Ok(_) => refuse_newer(path, &connection).map(|()| Reader::Real(connection)),
        Err(error) if access == Access::ReadOnly && is_unwritable(&error) => {
            read_unwritable(path).map(Reader::Real)
        }
        Err(error) => Err(explain(error)),
    }
}

fn stand_in(path: &Path) -> Result<Reader, StoreError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let mut connection = Connection::open_in_memory().map_err(explain)?;
    schema::migrate(&mut connection).map_err(explain)?;
    Ok(Reader::Empty(connection))
}

/// A reader must write to the shared index beside the log, which a read-only disk does not allow.
/// With no log left, the database can be read as a file that does not change.
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

/// The file in which SQLite gathers what is not yet in the database.
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

/// How long another process may take to finish what made a file look torn for a moment.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(50);

/// Looks at the file's first bytes, and gives the version of its tables. A missing or empty file is
/// fine: it is made, or nothing is read.
pub(super) fn check_header(path: &Path) -> Result<u32, StoreError> {
    match look_at_header(path) {
        // A process that works its log in as it ends writes the header before the rest.
        Err(StoreError::Damaged { .. }) => {
            std::thread::sleep(SECOND_LOOK_AFTER);
            look_at_header(path)
        }
        seen => seen,
    }
}

fn look_at_header(path: &Path) -> Result<u32, StoreError> {
    if is_absent(path)? {
        return Ok(0);
    }
    let damaged =
        |detail: &str| StoreError::Damaged { path: path.to_owned(), detail: detail.to_owned() };
    let mut file = File::open(path).map_err(|error| io_error(path, &error))?;
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
    // Zero and zero is a file that another process is making at this moment.
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

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn is_unwritable(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
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

/// Says what a failure of SQLite means for this file.
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
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Busy { path, seconds: BUSY_SECONDS_MAX }
        }
        _ => StoreError::Failed { path, detail },
    }
}
