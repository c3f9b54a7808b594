//! Finds executables.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Finds a command: a path relative to the home folder, or a bare name in the PATH.
pub(crate) fn find_executable(command: &str, home: &Path, folders: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(home.join(command)).filter(|path| is_executable(path));
    }
    std::env::split_paths(folders)
        .map(|folder| home.join(folder).join(command))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
