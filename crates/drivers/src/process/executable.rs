//! The search for executables, and the check of those that are files of the home.
//!
//! A command finds a home in a parent folder. Its definitions are checked before they are used, and a
//! program that they name within the home must be as trustworthy as they are.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Returns the reason why an executable in the home may be of another user.
type ProgramTest = dyn Fn(&Path) -> Result<(), String> + Send + Sync;

/// The check of executables in the home. The default accepts all.
#[derive(Clone, Default)]
pub struct HomeProgramCheck(Option<Arc<ProgramTest>>);

impl HomeProgramCheck {
    /// A check with this test of paths within the home.
    pub fn new(test: impl Fn(&Path) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(test)))
    }

    /// Fails if a command names an executable in the home by its path and the test refuses it. A name
    /// without a folder is looked up in the PATH, which belongs to the user.
    pub(crate) fn check(&self, command: &str, path: &Path, home: &Path) -> Result<(), String> {
        match &self.0 {
            Some(test) if command.contains('/') && is_within(path, home) => test(path),
            Some(_) | None => Ok(()),
        }
    }
}

/// True if a path leads into the home, by its name or by the links in it.
fn is_within(path: &Path, home: &Path) -> bool {
    let real = || Some(path.canonicalize().ok()?.starts_with(home.canonicalize().ok()?));
    path.starts_with(home) || real().unwrap_or(false)
}

impl fmt::Debug for HomeProgramCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HomeProgramCheck").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_into_the_home_are_checked() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        std::fs::write(home.join("tool"), "").unwrap();
        let outside = tempfile::tempdir().unwrap();
        let link = outside.path().join("link");
        std::os::unix::fs::symlink(home.join("tool"), &link).unwrap();
        let check = HomeProgramCheck::new(|path| Err(path.display().to_string()));
        let is_checked = |command: &str, path: &Path| check.check(command, path, home).is_err();
        assert!(is_checked("./tool", &home.join("./tool")));
        assert!(is_checked("/elsewhere", &link));
        assert!(!is_checked("tool", &home.join("tool")));
        assert!(!is_checked("/bin/sh", Path::new("/bin/sh")));
        assert_eq!(HomeProgramCheck::default().check("./tool", &home.join("tool"), home), Ok(()));
    }
}
