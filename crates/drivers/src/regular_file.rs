//! Opens files that a program may have replaced. A FIFO blocks an ordinary open until another
//! process opens its other end, so nothing that a program can name is opened in the ordinary way.

use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

/// The reason that a file cannot be opened as a regular file.
#[derive(Debug, Error)]
pub(crate) enum RegularFileError {
    /// Another type of file, such as a FIFO.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<RegularFileError> for io::Error {
    fn from(error: RegularFileError) -> Self {
        match error {
            RegularFileError::NotRegular(_) => Self::new(io::ErrorKind::InvalidInput, error),
            RegularFileError::Io(error) => error,
        }
    }
}

/// Opens a regular file for reading. Never blocks and does not follow a link to the file.
pub(crate) fn open_regular_file(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::RDONLY)
}

/// Opens an existing regular file for writing, like [`open_regular_file`].
#[cfg(target_os = "linux")]
pub(crate) fn open_regular_file_for_writing(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::WRONLY)
}

/// Opens an existing regular file for reading and writing, like [`open_regular_file`].
pub(crate) fn open_regular_file_for_update(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::RDWR)
}

/// Reads a regular file, like [`open_regular_file`].
pub(crate) fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open_with(path: &Path, access: OFlags) -> Result<File, RegularFileError> {
    // The first check keeps devices closed, because opening one may have an effect, and names the
    // type of sockets and links. The flags and the second check cover a file that is replaced
    // meanwhile.
    check_type(fs::symlink_metadata(path)?.file_type())?;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, access | flags, Mode::empty()).map_err(io::Error::from)?;
    let file = File::from(file);
    check_type(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_type(file_type: FileType) -> Result<(), RegularFileError> {
    let name = if file_type.is_file() {
        return Ok(());
    } else if file_type.is_fifo() {
        "a FIFO"
    } else if file_type.is_socket() {
        "a socket"
    } else if file_type.is_dir() {
        "a folder"
    } else if file_type.is_symlink() {
        "a symbolic link"
    } else {
        "a device"
    };
    Err(RegularFileError::NotRegular(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn opens_only_regular_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("plain"), "text").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo"), Mode::RWXU).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        symlink("plain", path("link")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        symlink("/dev", path("devices")).unwrap();
        assert_eq!(read_regular_file(&path("plain")).unwrap(), b"text");
        for (name, kind) in [
            ("fifo", "a FIFO"),
            ("socket", "a socket"),
            ("link", "a symbolic link"),
            ("folder", "a folder"),
            ("devices/zero", "a device"),
        ] {
            for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
                let error = open_with(&path(name), access).unwrap_err().to_string();
                assert_eq!(error, format!("it is {kind}, not a regular file"), "{name}");
            }
        }
    }
}
