//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::SimError;

/// How much is collected before it is given to the system.
const BUFFER_BYTES: usize = 1 << 18;

/// How files end that have no name yet.
const ASIDE: &str = "unfinished";

/// Writes a file so that whoever looks, now or after a crash, sees the old one or the new one,
/// never a part.
pub(crate) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    write_aside(path, write)?;
    give_name(path)?;
    keep_name(path)
}

/// Writes a file, durably, under a name that no one looks at.
pub(crate) fn write_aside(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), SimError>,
) -> Result<(), SimError> {
    let aside = aside(path);
    let file = File::create(&aside).map_err(SimError::io("write", &aside))?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    let written = write(&mut writer).and_then(|()| {
        let written = writer.flush().and_then(|()| writer.get_ref().sync_all());
        written.map_err(SimError::io("write", &aside))
    });
    if written.is_err() {
        // What was collected has nowhere to go, and a part of a file would take the last room of a
        // full disk. If it cannot be removed, it is written over by the next of that name.
        drop(writer.into_parts());
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Gives a file that was written aside its name.
pub(crate) fn give_name(path: &Path) -> Result<(), SimError> {
    fs::rename(aside(path), path).map_err(SimError::io("write", path))
}

/// Makes the name of a file durable.
pub(crate) fn keep_name(path: &Path) -> Result<(), SimError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let here = Path::new(".");
    let folder = if folder.as_os_str().is_empty() { here } else { folder };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(SimError::io("sync", folder))
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension(ASIDE)
}

/// Whether a file was written aside and never got its name.
pub(crate) fn is_aside(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == ASIDE)
}

/// Makes a folder, and those around it that are missing, so that they are there after a crash.
pub(crate) fn make_folder(path: &Path) -> Result<(), SimError> {
    match fs::create_dir(path) {
        Ok(()) => keep_name(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let around = path.parent().filter(|around| !around.as_os_str().is_empty());
            let Some(around) = around else { return Err(SimError::io("make", path)(error)) };
            make_folder(around)?;
            fs::create_dir(path).map_err(SimError::io("make", path))?;
            keep_name(path)
        }
        Err(error) => Err(SimError::io("make", path)(error)),
    }
}

/// Removes files, if they are there.
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

/// Writes a small text whole.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), SimError> {
    write_whole(path, |file| file.write_all(text.as_bytes()).map_err(SimError::io("write", path)))
}

/// The text of a file that must be there.
pub(crate) fn read_text(path: &Path) -> Result<String, SimError> {
    let bytes = fs::read(path).map_err(SimError::io("read", path))?;
    String::from_utf8(bytes).map_err(|_| SimError::damaged(path, "it is not text in UTF-8"))
}
