//! Copies and compares folders.

use std::fs::{self, DirBuilder, File, FileTimes, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use polity_files::open_regular_file;
use tokio::sync::watch;

/// The maximum depth of folders that are copied, compared or searched. The system refuses longer
/// paths soon after.
const FOLDER_DEPTH_MAX: usize = 1000;

/// Fails if a folder is nested too deeply to be walked.
pub(super) fn check_depth(folder: &Path) -> io::Result<()> {
    if folder.components().count() <= FOLDER_DEPTH_MAX {
        return Ok(());
    }
    let first = folder.components().next().map(|part| part.as_os_str().to_string_lossy());
    let message = format!(
        "the folders in {} are nested more than {FOLDER_DEPTH_MAX} deep (FOLDER_DEPTH_MAX)",
        first.unwrap_or_default()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

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
                check_depth(&path)?;
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
pub(crate) fn count_differences(
    from: &Path,
    copy: &Path,
    data: &Path,
    stop: &watch::Receiver<bool>,
) -> io::Result<u64> {
    let (from, data) = (from.canonicalize()?, data.canonicalize()?);
    let mut changed = 0;
    walk_files(copy, &data, stop, |path, own| {
        let is_same = fs::symlink_metadata(from.join(path)).is_ok_and(|other| {
            own.file_type() == other.file_type()
                && compared_attributes(own) == compared_attributes(&other)
        });
        changed += u64::from(!is_same);
    })?;
    walk_files(&from, &data, stop, |path, _| {
        changed += u64::from(fs::symlink_metadata(copy.join(path)).is_err());
    })?;
    Ok(changed)
}

/// The compared attributes. A copied symbolic link has its own time.
fn compared_attributes(data: &Metadata) -> (u64, Option<std::time::SystemTime>) {
    let modified = if data.is_symlink() { None } else { data.modified().ok() };
    (data.len(), modified)
}

fn walk_files(
    root: &Path,
    data: &Path,
    stop: &watch::Receiver<bool>,
    mut visit: impl FnMut(&Path, &Metadata),
) -> io::Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            if *stop.borrow() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the run was stopped"));
            }
            let (kind, path) = (entry.file_type()?, folder.join(entry.file_name()));
            if kind.is_dir() {
                if entry.path() != data {
                    check_depth(&path)?;
                    folders.push(path);
                }
            } else if kind.is_file() || kind.is_symlink() {
                visit(&path, &entry.metadata()?);
            }
        }
    }
    Ok(())
}
