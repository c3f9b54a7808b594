//! Copies, compares and removes folders.

use std::fs::{self, DirBuilder, File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tokio::sync::watch;

use crate::cli::run::files::ignore_missing;
use crate::regular_file::open_regular_file;

/// Copies a folder without the home's data folder, as copy-on-write clones if the file system
/// supports them. Returns false if stopped.
pub(crate) fn copy_tree(
    from: &Path,
    to: &Path,
    data: &Path,
    stop: &watch::Receiver<bool>,
) -> io::Result<bool> {
    let (from, data) = (from.canonicalize()?, data.canonicalize()?);
    let mut modes = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let target = to.join(&folder);
        DirBuilder::new().mode(0o700).create(&target)?;
        modes.push((target, fs::metadata(from.join(&folder))?.permissions()));
        for entry in fs::read_dir(from.join(&folder))? {
            if *stop.borrow() {
                return Ok(false);
            }
            let entry = entry?;
            let (source, path) = (entry.path(), folder.join(entry.file_name()));
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                symlink(fs::read_link(&source)?, to.join(&path))?;
            } else if kind.is_file() {
                copy_file(&source, &to.join(&path))?;
            } else if kind.is_dir() && source != data {
                folders.push(path);
            }
            // Pipes and sockets are skipped.
        }
    }
    // Permissions come last, so that read-only folders can be filled.
    for (folder, permissions) in modes.into_iter().rev() {
        fs::set_permissions(folder, permissions)?;
    }
    Ok(true)
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let source = open_regular_file(from)?;
    let target = File::create_new(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        io::copy(&mut &source, &mut &target)?;
    }
    let data = source.metadata()?;
    // Build tools compare modification times.
    target.set_times(FileTimes::new().set_modified(data.modified()?))?;
    target.set_permissions(data.permissions())
}

/// The number of files that differ between a folder and its copy, by size, time or type.
pub(crate) fn count_differences(from: &Path, copy: &Path, data: &Path) -> io::Result<u64> {
    let (from, data) = (from.canonicalize()?, data.canonicalize()?);
    let mut changed = 0;
    walk_files(copy, &data, |path, own| {
        let is_same = fs::symlink_metadata(from.join(path)).is_ok_and(|other| {
            own.file_type() == other.file_type()
                && compared_attributes(own) == compared_attributes(&other)
        });
        changed += u64::from(!is_same);
    })?;
    walk_files(&from, &data, |path, _| {
        changed += u64::from(fs::symlink_metadata(copy.join(path)).is_err());
    })?;
    Ok(changed)
}

/// The compared attributes. A copied symbolic link has its own time.
fn compared_attributes(data: &Metadata) -> (u64, Option<std::time::SystemTime>) {
    let modified = if data.is_symlink() { None } else { data.modified().ok() };
    (data.len(), modified)
}

fn walk_files(root: &Path, data: &Path, mut visit: impl FnMut(&Path, &Metadata)) -> io::Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            if kind.is_dir() {
                if entry.path() != data {
                    folders.push(path);
                }
            } else if kind.is_file() || kind.is_symlink() {
                visit(&path, &entry.metadata()?);
            }
        }
    }
    Ok(())
}

/// Removes a folder, even if it contains read-only folders.
pub(crate) fn remove_tree(root: &Path) -> io::Result<()> {
    match ignore_missing(fs::remove_dir_all(root)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut folders = vec![root.to_owned()];
            while let Some(folder) = folders.pop() {
                fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
                for entry in fs::read_dir(&folder)? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
            fs::remove_dir_all(root)
        }
        removed => removed,
    }
}
