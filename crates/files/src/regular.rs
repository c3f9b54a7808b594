//! Opens files that a program may have replaced. A FIFO blocks an ordinary open until another
//! process opens its other end, so nothing that a program can name is opened in the ordinary way.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use thiserror::Error;

/// The flags of every open: it never blocks, never follows a link and gets no terminal.
const SAFE_FLAGS: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOFOLLOW).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The reason that a file cannot be used as a regular file.
#[derive(Debug, Error)]
pub enum RegularFileError {
    /// Another type of file, such as a FIFO.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    /// A folder on the way to the file is a symbolic link, which may lead anywhere.
    #[error("its folder {} is a symbolic link, and links are not followed here", .0.display())]
    LinkedFolder(PathBuf),
    /// The file is larger than the reader accepts.
    #[error("it has more than {bytes_max} bytes, the most that is read")]
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<RegularFileError> for io::Error {
    fn from(error: RegularFileError) -> Self {
        match error {
            RegularFileError::NotRegular(_)
            | RegularFileError::LinkedFolder(_)
            | RegularFileError::TooLarge { .. } => Self::new(io::ErrorKind::InvalidInput, error),
            RegularFileError::Io(error) => error,
        }
    }
}

impl From<Errno> for RegularFileError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Opens a regular file for reading. Never blocks and does not follow a link to the file.
pub fn open_regular_file(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::RDONLY)
}

/// Opens an existing regular file for writing, like [`open_regular_file`].
pub fn open_regular_file_for_writing(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::WRONLY)
}

/// Opens an existing regular file for reading and writing, like [`open_regular_file`].
pub fn open_regular_file_for_update(path: &Path) -> Result<File, RegularFileError> {
    open_with(path, OFlags::RDWR)
}

/// Reads a regular file of at most `bytes_max` bytes, like [`open_regular_file`].
pub fn read_regular_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, RegularFileError> {
    read_to_limit(&open_regular_file(path)?, bytes_max)
}

/// Reads a file that the user names, of at most `bytes_max` bytes. Follows links, because the user
/// may have made them, but never blocks.
pub fn read_named_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, RegularFileError> {
    read_to_limit(&open_named_file(path)?, bytes_max)
}

/// Opens a file that the user names, like [`read_named_file`].
pub fn open_named_file(path: &Path) -> Result<File, RegularFileError> {
    check_type(rustix::fs::stat(path)?.st_mode)?;
    let flags = OFlags::RDONLY | SAFE_FLAGS.difference(OFlags::NOFOLLOW);
    checked(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a regular file for reading that is in `root`, or in a folder below. Follows no link on the
/// way: a program could make one that leads out of its folder.
pub fn open_beneath(root: &Path, path: &Path) -> Result<File, RegularFileError> {
    let (folder, name) = open_folder_beneath(root, path)?;
    check_type(rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)?;
    checked(rustix::fs::openat(&folder, &name, OFlags::RDONLY | SAFE_FLAGS, Mode::empty())?)
}

/// Removes a file in `root` or in a folder below, like [`open_beneath`]. A missing file is removed
/// already.
pub fn remove_beneath(root: &Path, path: &Path) -> Result<(), RegularFileError> {
    let removed = open_folder_beneath(root, path)
        .and_then(|(folder, name)| Ok(rustix::fs::unlinkat(&folder, &name, AtFlags::empty())?));
    match removed {
        Err(RegularFileError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Opens the folder of a file, part by part. Returns it with the name of the file.
fn open_folder_beneath(root: &Path, path: &Path) -> Result<(OwnedFd, PathBuf), RegularFileError> {
    let outside =
        || io::Error::new(io::ErrorKind::InvalidInput, "the path leads out of the folder");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(outside().into());
            }
        }
    }
    let file = names.pop().ok_or_else(outside)?;
    let mut walked = PathBuf::new();
    for name in names {
        walked.push(name);
        let opened = rustix::fs::openat(&folder, name, flags | SAFE_FLAGS, Mode::empty());
        folder = match opened {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let about = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let is_link = FileType::from_raw_mode(about.st_mode).is_symlink();
                let linked = || RegularFileError::LinkedFolder(walked);
                return Err(if is_link { linked() } else { Errno::NOTDIR.into() });
            }
            opened => opened?,
        };
    }
    Ok((folder, file.into()))
}

fn read_to_limit(file: &File, bytes_max: u64) -> Result<Vec<u8>, RegularFileError> {
    let too_large = RegularFileError::TooLarge { bytes_max };
    if file.metadata()?.len() > bytes_max {
        return Err(too_large);
    }
    let mut bytes = Vec::new();
    // One byte over the limit shows that the file has grown meanwhile.
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(too_large) } else { Ok(bytes) }
}

fn open_with(path: &Path, access: OFlags) -> Result<File, RegularFileError> {
    // The first check keeps devices closed, because opening one may have an effect, and names the
    // type of sockets and links. The flags and the second check cover a file that is replaced
    // meanwhile.
    check_type(rustix::fs::lstat(path)?.st_mode)?;
    checked(rustix::fs::open(path, access | SAFE_FLAGS, Mode::empty())?)
}

fn checked(file: OwnedFd) -> Result<File, RegularFileError> {
    let file = File::from(file);
    check_type(rustix::fs::fstat(&file)?.st_mode)?;
    Ok(file)
}

fn check_type(mode: RawMode) -> Result<(), RegularFileError> {
    let file_type = FileType::from_raw_mode(mode);
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
    use std::fs;
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
        assert_eq!(read_regular_file(&path("plain"), 4).unwrap(), b"text");
        assert_eq!(read_named_file(&path("link"), 4).unwrap(), b"text");
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

    #[test]
    fn endless_sparse_and_blocking_files_are_not_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        rustix::fs::mkfifoat(CWD, path("fifo"), Mode::RWXU).unwrap();
        for (name, reason) in [
            ("sparse", "it has more than 1000 bytes, the most that is read"),
            ("zero", "it is a device, not a regular file"),
            ("fifo", "it is a FIFO, not a regular file"),
        ] {
            let error = read_named_file(&path(name), 1000).unwrap_err();
            assert_eq!(error.to_string(), reason, "{name}");
        }
    }

    #[test]
    fn link_among_the_folders_of_a_path_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("work/a/b")).unwrap();
        fs::create_dir(path("other")).unwrap();
        fs::write(path("work/a/b/answer"), "42").unwrap();
        fs::write(path("other/answer"), "theirs").unwrap();
        symlink("../other", path("work/link")).unwrap();
        symlink("b/answer", path("work/a/link")).unwrap();
        let work = path("work");
        let open = |name: &str| open_beneath(&work, Path::new(name)).map_err(|e| e.to_string());
        assert_eq!(io::read_to_string(open("./a/b/answer").unwrap()).unwrap(), "42");
        for (name, reason) in [
            ("link/answer", "its folder link is a symbolic link, and links are not followed here"),
            ("a/link", "it is a symbolic link, not a regular file"),
            ("../other/answer", "the path leads out of the folder"),
            ("/etc/passwd", "the path leads out of the folder"),
            ("", "the path leads out of the folder"),
        ] {
            assert_eq!(open(name).unwrap_err(), reason, "{name}");
        }
        remove_beneath(&work, Path::new("link/answer")).unwrap_err();
        assert!(path("other/answer").exists());
        remove_beneath(&work, Path::new("a/b/answer")).unwrap();
        remove_beneath(&work, Path::new("a/b/answer")).unwrap();
        assert!(!path("work/a/b/answer").exists());
    }
}
