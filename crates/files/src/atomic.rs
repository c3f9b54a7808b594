//! Atomic and durable writes.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::private::{FileAccess, create_file};

/// The buffer size in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// The extension of temporary files.
const TEMPORARY: &str = "unfinished";

/// Writes a file atomically: readers see the old or the new content, also after a crash. `failed`
/// turns an error of the file system into the caller's.
pub fn write_atomic<E>(
    path: &Path,
    access: FileAccess,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    failed: impl Fn(io::Error) -> E,
) -> Result<(), E> {
    write_temporary(path, access, write, &failed)?;
    publish(path).and_then(|()| sync_name(path)).map_err(failed)
}

/// Writes bytes atomically, like [`write_atomic`].
pub fn write_bytes(path: &Path, access: FileAccess, bytes: &[u8]) -> io::Result<()> {
    write_atomic(path, access, |file| file.write_all(bytes), |error| error)
}

/// Writes a file durably under its [temporary name](temporary_path). A failure leaves no file.
pub fn write_temporary<E>(
    path: &Path,
    access: FileAccess,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
    failed: impl Fn(io::Error) -> E,
) -> Result<(), E> {
    let temporary = temporary_path(path);
    let file = remove_leftover(&temporary)
        .and_then(|()| create_file(&temporary, access))
        .map_err(&failed)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    let written = write(&mut writer)
        .and_then(|()| writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(&failed));
    if written.is_err() {
        // The buffered rest is dropped, and the file is removed so that it does not fill the disk.
        // If that fails, the next write replaces it.
        drop(writer.into_parts());
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Renames a temporary file to its final name. [`sync_name`] makes the name durable.
pub fn publish(path: &Path) -> io::Result<()> {
    fs::rename(temporary_path(path), path)
}

/// Writes bytes to a new file atomically. Fails if there is a file.
pub fn write_new(path: &Path, access: FileAccess, bytes: &[u8]) -> io::Result<()> {
    write_temporary(path, access, |file| file.write_all(bytes), |error| error)?;
    let temporary = temporary_path(path);
    // A link fails if the name exists; a rename would replace the other file.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    linked?;
    sync_name(path)
}

/// Makes the name of a file or folder durable.
pub fn sync_name(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    sync_folder(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The temporary name of a file: hidden, beside it, and of this process.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{TEMPORARY}", std::process::id()));
    path.with_file_name(name)
}

/// True for the name of a temporary file.
pub fn is_temporary(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == TEMPORARY)
}

/// Removes the file of a crashed process that had the same id.
fn remove_leftover(temporary: &Path) -> io::Result<()> {
    match fs::remove_file(temporary) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn failed_write_keeps_the_old_content_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_bytes(&path, FileAccess::Private, b"old").unwrap();
        let failing = |file: &mut BufWriter<File>| {
            file.write_all(b"new")?;
            Err(io::Error::other("no"))
        };
        write_atomic(&path, FileAccess::Private, failing, |error| error).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_bytes(&path, FileAccess::Private, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a.json"]);
    }

    #[test]
    fn planted_link_under_the_temporary_name_is_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("a"), folder.path().join("victim"));
        fs::write(&victim, "theirs").unwrap();
        std::os::unix::fs::symlink(&victim, temporary_path(&path)).unwrap();
        write_bytes(&path, FileAccess::Private, b"ours").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"theirs");
        assert_eq!(fs::read(&path).unwrap(), b"ours");
    }

    #[test]
    fn new_file_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let write = |bytes: &[u8]| write_new(&path, FileAccess::Shared, bytes);
        write(b"first").unwrap();
        assert_eq!(write(b"second").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["a"]);
    }
}
