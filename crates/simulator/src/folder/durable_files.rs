//! Atomic and durable writes of files.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::SimError;

/// The buffer size in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// The extension of temporary files.
const TEMPORARY: &str = "unfinished";

/// Writes a file atomically: readers see the old or the new content, also after a crash.
pub(crate) fn write_atomic(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    write_temporary(path, write)?;
    publish(path)?;
    sync_name(path)
}

/// Writes a file durably under a temporary name.
pub(crate) fn write_temporary(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    let temporary = temporary(path);
    let file = File::create(&temporary).map_err(SimError::io("write", &temporary))?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    let written = write(&mut writer).and_then(|()| {
        let written = writer.flush().and_then(|()| writer.get_ref().sync_all());
        written.map_err(SimError::io("write", &temporary))
    });
    if written.is_err() {
        // The buffered rest is dropped, and the file is removed so that it does not fill the disk.
        // If that fails, the next write replaces it.
        drop(writer.into_parts());
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Renames a temporary file to its final name.
pub(crate) fn publish(path: &Path) -> Result<(), SimError> {
    fs::rename(temporary(path), path).map_err(SimError::io("write", path))
}

/// Makes the name of a file durable.
pub(crate) fn sync_name(path: &Path) -> Result<(), SimError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let here = Path::new(".");
    let folder = if folder.as_os_str().is_empty() { here } else { folder };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(SimError::io("sync", folder))
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension(TEMPORARY)
}

/// True for a temporary file.
pub(crate) fn is_temporary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == TEMPORARY)
}

/// Creates a folder and its missing parents durably.
pub(crate) fn create_folder(path: &Path) -> Result<(), SimError> {
    match fs::create_dir(path) {
        Ok(()) => sync_name(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let Some(parent) = parent else { return Err(SimError::io("make", path)(error)) };
            create_folder(parent)?;
            fs::create_dir(path).map_err(SimError::io("make", path))?;
            sync_name(path)
        }
        Err(error) => Err(SimError::io("make", path)(error)),
    }
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
    let bytes = fs::read(path).map_err(SimError::io("read", path))?;
    String::from_utf8(bytes).map_err(|_| SimError::damaged(path, "it is not text in UTF-8"))
}
