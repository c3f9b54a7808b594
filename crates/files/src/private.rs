//! Files and folders of one user.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::atomic::sync_name;

/// The access of other users to a new file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    /// Nobody but the user has access.
    Private,
    /// The umask decides, as for files that people edit.
    Shared,
}

impl FileAccess {
    fn file_mode(self) -> u32 {
        match self {
            Self::Private => 0o600,
            Self::Shared => 0o666,
        }
    }

    fn folder_mode(self) -> u32 {
        match self {
            Self::Private => 0o700,
            Self::Shared => 0o777,
        }
    }
}

/// The id of root, which can read everything anyway. Its files are trusted and not changed.
const ROOT_USER: u32 = 0;

/// The permissions of the group and of all other users.
const OTHERS: u32 = 0o077;

/// Creates a file. Fails if there is one.
pub fn create_file(path: &Path, access: FileAccess) -> io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(access.file_mode()).open(path)
}

/// Opens a file for reading and writing, or creates a private one, without changing its content.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(FileAccess::Private.file_mode())
        .open(path)
}

/// Creates a folder and its missing parents durably. Leaves folders that exist unchanged.
pub fn create_folder(path: &Path, access: FileAccess) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let create = || match DirBuilder::new().mode(access.folder_mode()).create(path) {
        Ok(()) => sync_name(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    };
    match (create(), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == ErrorKind::NotFound => {
            create_folder(parent, access)?;
            create()
        }
        (created, _) => created,
    }
}

/// Creates a private folder and its missing parents without a sync, for files that may be lost with
/// the power.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FileAccess::Private.folder_mode()).create(path)
}

/// The reason why a folder cannot be made private.
#[derive(Debug)]
pub enum PrivacyError {
    /// Another user than root owns the folder, or a file or folder in it.
    ForeignOwner {
        /// The file or folder.
        path: PathBuf,
        /// The user.
        user: u32,
    },
    /// The folder is a link to a folder to which others have access. Links are not followed.
    WideLinkTarget,
    /// The file system failed.
    Io(PathBuf, io::Error),
}

/// Takes the access of other users away from a folder and everything in it, except for the content
/// of the direct entries named in `skip`. Returns the number of changed files and folders. Follows
/// no link.
///
/// Others reach nothing in a private folder. So the content is looked at only if the folder or one
/// of its direct entries was open to others.
pub fn make_private(folder: &Path, skip: &[&str]) -> Result<u64, PrivacyError> {
    let io = |error| PrivacyError::Io(folder.to_owned(), error);
    let own = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        metadata => metadata.map_err(io)?,
    };
    let target = fs::metadata(folder).map_err(io)?;
    let user = rustix::process::geteuid().as_raw();
    expect_own(folder, &own)?;
    expect_own(folder, &target)?;
    if own.is_symlink() && target.uid() == user && target.mode() & OTHERS != 0 {
        return Err(PrivacyError::WideLinkTarget);
    }
    let is_open = !own.is_symlink() && strip_access(folder)?;
    let changed = strip_entries(folder, skip, is_open);
    if let (Err(PrivacyError::ForeignOwner { .. }), true) = (&changed, is_open) {
        // The next attempt must look at everything again.
        fs::set_permissions(folder, own.permissions()).map_err(io)?;
    }
    Ok(u64::from(is_open) + changed?)
}

/// Strips the access to the entries of a folder, and to everything below if others had access to
/// the folder or to an entry.
fn strip_entries(folder: &Path, skip: &[&str], is_open: bool) -> Result<u64, PrivacyError> {
    let mut changed = 0;
    for path in entries(folder)? {
        changed += u64::from(strip_access(&path)?);
    }
    if is_open || changed > 0 {
        for path in entries(folder)? {
            let is_skipped = skip.iter().any(|name| path.ends_with(name));
            if !is_skipped {
                changed += strip_below(&path)?;
            }
        }
    }
    Ok(changed)
}

/// Strips the access to everything in a folder, folder by folder from the top. It does not recurse,
/// so that no depth exceeds the stack.
fn strip_below(folder: &Path) -> Result<u64, PrivacyError> {
    let mut changed = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if fs::symlink_metadata(&folder).is_ok_and(|metadata| metadata.is_dir()) {
            for path in entries(&folder)? {
                changed += u64::from(strip_access(&path)?);
                folders.push(path);
            }
        }
    }
    Ok(changed)
}

/// Fails if another user than root owns a path: the content may be of that user.
fn expect_own(path: &Path, metadata: &Metadata) -> Result<(), PrivacyError> {
    let user = metadata.uid();
    if user == rustix::process::geteuid().as_raw() || user == ROOT_USER {
        return Ok(());
    }
    Err(PrivacyError::ForeignOwner { path: path.to_owned(), user })
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, PrivacyError> {
    let entries = match fs::read_dir(folder) {
        // Another process has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries,
    };
    entries
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|error| PrivacyError::Io(folder.to_owned(), error))
}

/// Strips the access of others to one file or folder. Returns true if there was some.
fn strip_access(path: &Path) -> Result<bool, PrivacyError> {
    let io = |error| PrivacyError::Io(path.to_owned(), error);
    let metadata = match fs::symlink_metadata(path) {
        // Another process has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        metadata => metadata.map_err(io)?,
    };
    expect_own(path, &metadata)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    let has_mode = metadata.is_file() || metadata.is_dir();
    if !is_ours || !has_mode || metadata.mode() & OTHERS == 0 {
        return Ok(false);
    }
    // The descriptor cannot be of a link that takes the place of the file meanwhile.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let stripped = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    let stripped = stripped.map(File::from).and_then(|file| {
        let mode = file.metadata()?.mode() & 0o7700;
        file.set_permissions(Permissions::from_mode(mode))
    });
    match stripped {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        stripped => stripped.map(|()| true).map_err(io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn wide_folder_and_everything_in_it_become_private() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::create_dir_all(data.join("a/b")).unwrap();
        fs::create_dir_all(data.join("skipped")).unwrap();
        for file in ["file", "a/b/tool", "skipped/x"] {
            fs::write(data.join(file), "").unwrap();
            set_mode(&data.join(file), 0o755);
        }
        for folder in ["", "a", "a/b", "skipped"] {
            set_mode(&data.join(folder), 0o777);
        }
        assert_eq!(make_private(&data, &["skipped"]).unwrap(), 6);
        for path in ["", "file", "a", "a/b", "a/b/tool", "skipped"] {
            assert_eq!(mode(&data.join(path)), 0o700, "{path}");
        }
        assert_eq!(mode(&data.join("skipped/x")), 0o755);
        assert_eq!(make_private(&data, &[]).unwrap(), 0);
        assert_eq!(make_private(&root.path().join("missing"), &[]).unwrap(), 0);
    }

    #[test]
    fn link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (data, victim) = (root.path().join("data"), root.path().join("victim"));
        fs::create_dir(&data).unwrap();
        fs::write(&victim, "").unwrap();
        set_mode(&victim, 0o644);
        set_mode(&data, 0o777);
        std::os::unix::fs::symlink(&victim, data.join("link")).unwrap();
        make_private(&data, &[]).unwrap();
        assert_eq!((mode(&victim), mode(&data)), (0o644, 0o700));
    }

    #[test]
    fn folder_behind_a_link_must_be_private_already() {
        let root = tempfile::tempdir().unwrap();
        let (data, target) = (root.path().join("data"), root.path().join("target"));
        fs::create_dir(&target).unwrap();
        std::os::unix::fs::symlink(&target, &data).unwrap();
        set_mode(&target, 0o755);
        assert!(matches!(make_private(&data, &[]), Err(PrivacyError::WideLinkTarget)));
        assert_eq!(mode(&target), 0o755);
        set_mode(&target, 0o700);
        assert_eq!(make_private(&data, &[]).unwrap(), 0);
    }

    #[test]
    fn folder_or_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let (data, database) = (root.path().join("data"), root.path().join("data/a/polity.db"));
        fs::create_dir_all(data.join("a")).unwrap();
        set_mode(&data, 0o777);
        fs::write(&database, "").unwrap();
        for path in [&database, &data.join("a"), &data] {
            std::os::unix::fs::chown(path, Some(12345), None).unwrap();
            let refused = make_private(&data, &[]);
            let Err(PrivacyError::ForeignOwner { path: named, user: 12345 }) = refused else {
                panic!("{}: {refused:?}", path.display());
            };
            assert_eq!((&named, mode(&data)), (path, 0o777));
        }
    }
}
