//! Removal of folders of any depth and with any permissions.
//!
//! A program may nest its folders deeper than a stack or the descriptors of a process allow. So the
//! walk is a loop that holds the descriptor of one folder. It returns to a parent through `..` and
//! checks that it is the folder it came from.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The maximum number of times that a folder is emptied. A process that still writes to it could
/// otherwise prolong the removal forever.
const PASSES_MAX: u32 = 8;

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder on the way from the root to the current folder.
struct WalkedFolder {
    /// The name in its parent; empty for the root.
    name: CString,
    /// The device and the file number, which identify it.
    identity: (u64, u64),
    /// The folders in it that are not removed yet.
    subfolders: Vec<CString>,
    /// The number of times that it was emptied.
    passes: u32,
}

/// Removes a folder with everything in it, or a file. Follows no link and reads folders without
/// permissions as well. Something that does not exist is removed already.
pub fn remove_tree(root: &Path) -> io::Result<()> {
    remove_tree_until(root, &|| false)
}

/// Removes a folder, like [`remove_tree`], or as much of it as there is time for. Fails with
/// [`io::ErrorKind::Interrupted`] once `is_stopped` returns true.
pub fn remove_tree_until(root: &Path, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
    let current = match open_folder(CWD, root) {
        Err(Errno::NOENT) => return Ok(()),
        // A file, or a link to anything.
        Err(Errno::NOTDIR | Errno::LOOP) => return ignore_missing(fs::remove_file(root)),
        current => current?,
    };
    empty(current, is_stopped)?;
    ignore_missing(fs::remove_dir(root))
}

/// Removes everything in a folder.
fn empty(root: OwnedFd, is_stopped: &dyn Fn() -> bool) -> io::Result<()> {
    let mut current = root;
    let mut walked = vec![enter(&current, CString::default())?];
    while let Some(folder) = walked.last_mut() {
        if is_stopped() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the removal was stopped"));
        }
        if let Some(name) = folder.subfolders.pop() {
            match open_folder(&current, name.as_c_str()) {
                // Another process has removed it.
                Err(Errno::NOENT) => {}
                // Another process has replaced it.
                Err(Errno::NOTDIR | Errno::LOOP) => unlink(&current, &name, AtFlags::empty())?,
                opened => {
                    current = opened?;
                    walked.push(enter(&current, name)?);
                }
            }
            continue;
        }
        let is_root = walked.len() == 1;
        let Some(done) = walked.pop() else { break };
        if is_root {
            break;
        }
        let Some(parent) = walked.last() else { break };
        let up = rustix::fs::openat(&current, c"..", FOLDER_FLAGS, Mode::empty())?;
        if identity(&up)? != parent.identity {
            return Err(io::Error::other("a folder was moved while it was being removed"));
        }
        match unlink(&up, &done.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if done.passes < PASSES_MAX => {
                let subfolders = remove_files(&current)?;
                walked.push(WalkedFolder { subfolders, passes: done.passes + 1, ..done });
            }
            removed => {
                removed?;
                current = up;
            }
        }
    }
    Ok(())
}

/// Removes the files of a folder that the walk has reached.
fn enter(folder: &OwnedFd, name: CString) -> io::Result<WalkedFolder> {
    // Removing an entry needs all permissions on its folder.
    if rustix::fs::fstat(folder)?.st_mode & Mode::RWXU.bits() != Mode::RWXU.bits() {
        rustix::fs::fchmod(folder, Mode::RWXU)?;
    }
    let (identity, subfolders) = (identity(folder)?, remove_files(folder)?);
    Ok(WalkedFolder { name, identity, subfolders, passes: 1 })
}

/// Removes the files of a folder and returns the names of its folders.
fn remove_files(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut subfolders = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let file_type = match entry.file_type() {
            FileType::Unknown => {
                match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => continue,
                    about => FileType::from_raw_mode(about?.st_mode),
                }
            }
            known => known,
        };
        if file_type.is_dir() {
            subfolders.push(name.to_owned());
        } else {
            unlink(folder, name, AtFlags::empty())?;
        }
    }
    Ok(subfolders)
}

fn unlink(folder: impl AsFd, name: &CStr, flags: AtFlags) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, name, flags) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Opens a folder, with permissions if it has none.
fn open_folder(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat(&parent, name, FOLDER_FLAGS, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            permit(&parent, name)?;
            open()
        }
        opened => opened,
    }
}

/// Gives the user all permissions on a folder, never on the target of a link.
#[cfg(target_os = "linux")]
fn permit(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    use std::os::fd::AsRawFd as _;

    let folder = rustix::fs::openat(parent, name, FOLDER_FLAGS | OFlags::PATH, Mode::empty())?;
    // The descriptor of a path has no mode to change, but a name.
    rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU)
}

#[cfg(not(target_os = "linux"))]
fn permit(parent: impl AsFd, name: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)
}

fn identity(folder: &OwnedFd) -> Result<(u64, u64), Errno> {
    let about = rustix::fs::fstat(folder)?;
    Ok((about.st_dev as u64, about.st_ino as u64))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Deeper than a recursive walk can go with a stack of this size.
    const DEPTH: u32 = 3_000;
    const STACK_BYTES: usize = 128 << 10;

    fn nest_folders(root: &Path) {
        fs::create_dir(root).unwrap();
        let mut current = open_folder(CWD, root).unwrap();
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&current, c"d", Mode::RWXU).unwrap();
            current = open_folder(&current, c"d").unwrap();
        }
    }

    #[test]
    fn deep_folders_do_not_overflow_the_stack() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        nest_folders(&root);
        let checks = std::cell::Cell::new(0);
        let is_stopped = || checks.replace(checks.get() + 1) == 10;
        let stopped = remove_tree_until(&root, &is_stopped).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
        let removal = std::thread::Builder::new().stack_size(STACK_BYTES).spawn({
            let root = root.clone();
            move || remove_tree(&root)
        });
        removal.unwrap().join().unwrap().unwrap();
        assert!(!root.exists());
        remove_tree(&root).unwrap();
    }

    #[test]
    fn removes_what_has_no_permissions_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("root/a/b/c")).unwrap();
        fs::create_dir_all(path("root/a/e")).unwrap();
        fs::create_dir(path("victim")).unwrap();
        fs::write(path("victim/file"), "").unwrap();
        fs::write(path("root/a/b/c/file"), "").unwrap();
        symlink("../../victim", path("root/a/link")).unwrap();
        for (name, mode) in [("root/a/b/c", 0o555), ("root/a/b", 0), ("root", 0o300)] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("victim", path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        for name in ["root", "link", "file"] {
            remove_tree(&path(name)).unwrap();
            assert!(fs::symlink_metadata(path(name)).is_err(), "{name}");
        }
        assert!(path("victim/file").exists());
    }
}
