//! Atomic and durable writes of files.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use polity_files::FileAccess;
pub(crate) use polity_files::is_temporary;

use crate::error::SimError;

/// The maximum size of a text file of a run: its record, scenario or chart.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Writes a private file atomically: readers see the old or the new content, also after a crash.
pub(crate) fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    polity_files::write_atomic(path, FileAccess::Private, write, io(path))
}

/// Writes a private file durably under a temporary name.
pub(crate) fn write_temporary(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    polity_files::write_temporary(path, FileAccess::Private, write, io(path))
}

/// Renames a temporary file to its final name.
pub(crate) fn publish(path: &Path) -> Result<(), SimError> {
    polity_files::publish(path).map_err(SimError::io("write", path))
}

/// Makes the name of a file durable.
pub(crate) fn sync_name(path: &Path) -> Result<(), SimError> {
    polity_files::sync_name(path).map_err(SimError::io("sync", path))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), SimError> {
    polity_files::sync_folder(folder).map_err(SimError::io("sync", folder))
}

/// Creates a private folder and its missing parents durably.
pub(crate) fn create_folder(path: &Path) -> Result<(), SimError> {
    polity_files::create_folder(path, FileAccess::Private).map_err(SimError::io("make", path))
}

/// Opens a file for reading and writing, or creates a private one.
pub(crate) fn open_or_create(path: &Path) -> Result<File, SimError> {
    polity_files::open_or_create(path).map_err(SimError::io("write", path))
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> SimError {
    let path = path.to_owned();
    move |error| SimError::io("write", &path)(error)
}

/// Removes files, if they exist.
pub(crate) fn remove_all(paths: &[PathBuf]) -> Result<(), SimError> {
    for path in paths {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(SimError::io("remove", path)(error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Writes a small text atomically.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), SimError> {
    write_atomic(path, |file| file.write_all(text.as_bytes()).map_err(SimError::io("write", path)))
}

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String, SimError> {
    let bytes = polity_files::read_named_file(path, TEXT_BYTES_MAX)
        .map_err(|error| SimError::io("read", path)(error.into()))?;
    String::from_utf8(bytes).map_err(|_| SimError::damaged(path, "it is not text in UTF-8"))
}
