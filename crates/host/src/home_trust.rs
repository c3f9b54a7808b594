//! The check that only this user can have written the definitions of a home.
//!
//! Definitions name programs to run. A command finds a home in a parent folder that anyone may
//! have put there, for example in `/tmp`, so that home must belong to the user.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::account_name::AccountName;
use crate::error::HostError;

/// The mode bit for writing by the group.
const GROUP_WRITE: u32 = 0o020;

/// The mode bit for writing by everyone.
const OTHERS_WRITE: u32 = 0o002;

/// The user who owns what every user trusts.
const ROOT_USER: u32 = 0;

/// The reason why a path may hold definitions of another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustFault {
    /// Another user owns the path.
    ForeignOwner {
        /// The user.
        user: AccountName,
    },
    /// The group may write to the path.
    GroupWritable {
        /// The group.
        group: AccountName,
    },
    /// Everyone may write to the path.
    WorldWritable,
}

impl fmt::Display for TrustFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignOwner { user } => write!(f, "it belongs to another user ({user})"),
            Self::GroupWritable { group } => write!(f, "its group ({group}) may write to it"),
            Self::WorldWritable => f.write_str("every user may write to it"),
        }
    }
}

/// Fails if another user owns a path or may write to it. A path that does not exist passes.
pub(crate) fn check_path(path: &Path) -> Result<(), HostError> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(|error| HostError::io("read", path, error))?,
    };
    let process_user = rustix::process::geteuid().as_raw();
    match find_fault(process_user, metadata.uid(), metadata.gid(), metadata.mode()) {
        None => Ok(()),
        Some(fault) => Err(HostError::UntrustedHome { path: path.to_owned(), fault }),
    }
}

/// Fails if another user owns an executable below `root`, or a folder on the way to it, or may write
/// to one of them. The root itself was checked.
pub(crate) fn check_program(root: &Path, program: &Path) -> Result<(), HostError> {
    check_path(program)?;
    let folders = program.ancestors().skip(1);
    folders
        .take_while(|folder| folder.starts_with(root) && *folder != root)
        .try_for_each(check_path)
}

fn find_fault(process_user: u32, user: u32, group: u32, mode: u32) -> Option<TrustFault> {
    if user != process_user && user != ROOT_USER {
        return Some(TrustFault::ForeignOwner { user: AccountName::of_user(user) });
    }
    if mode & OTHERS_WRITE != 0 {
        return Some(TrustFault::WorldWritable);
    }
    // A group with the user's number is the user's private group.
    (mode & GROUP_WRITE != 0 && group != user)
        .then(|| TrustFault::GroupWritable { group: AccountName::of_group(group) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_and_root_are_trusted() {
        let group_writable =
            |group| Some(TrustFault::GroupWritable { group: AccountName::of_group(group) });
        let foreign = |user| Some(TrustFault::ForeignOwner { user: AccountName::of_user(user) });
        for (process_user, user, group, mode, fault) in [
            (1000, 1000, 1000, 0o755, None),
            (1000, 1000, 1000, 0o775, None),
            (1000, 0, 0, 0o755, None),
            (0, 0, 0, 0o775, None),
            (1000, 1000, 100, 0o755, None),
            (1000, 1000, 100, 0o775, group_writable(100)),
            (1000, 0, 1000, 0o775, group_writable(1000)),
            (1000, 1000, 1000, 0o757, Some(TrustFault::WorldWritable)),
            (1000, 0, 0, 0o757, Some(TrustFault::WorldWritable)),
            (0, 1000, 1000, 0o700, foreign(1000)),
            (1000, 1001, 1000, 0o700, foreign(1001)),
        ] {
            let found = find_fault(process_user, user, group, mode);
            assert_eq!(found, fault, "{process_user} {user} {group} {mode:o}");
        }
    }
}
