//! Errors of a store, with hints for the user.

use std::path::PathBuf;

/// A failed request to a store. Cloned to every caller of a failed batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The file is not a database, or a broken one.
    #[error("the database {path} is damaged: {detail}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        detail: String,
    },
    /// The file is a database of some other program.
    #[error("{path} is a database, but not one of Polity's")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer Polity.
    #[error(
        "the database {path} has version {found}; this program knows versions up to {supported}"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The newest version this program knows.
        supported: u32,
    },
    /// The disk, or the user's share of it, is full.
    #[error("the disk is full: {path} cannot grow")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error("{path} cannot be written: {detail}")]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// Another process kept the database to itself for too long.
    #[error("another process has kept the database {path} busy for {seconds} seconds")]
    Busy {
        /// The file.
        path: PathBuf,
        /// The waiting time.
        seconds: u64,
    },
    /// There is something in the journal that this program cannot read.
    #[error("the journal holds something unreadable at {place}: {detail}")]
    Unreadable {
        /// The row or stream.
        place: String,
        /// The damage.
        detail: String,
    },
    /// The database is open somewhere, and must not be.
    #[error("the database {path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// There is a file where a new one is to be written.
    #[error("{path} already exists")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is no such file or folder.
    #[error("there is no {path}")]
    Missing {
        /// The file or folder.
        path: PathBuf,
    },
    /// Any other failure of the disk or of the database.
    #[error("{path}: {detail}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// The reported error.
        detail: String,
    },
    /// The store was closed, or its writer ended, before it could answer.
    #[error("the store was closed before it answered")]
    Closed,
}

impl StoreError {
    /// The remedy for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => {
                "nothing was changed; restore a backup with `polity restore FILE`, \
                 or move the file and the log beside it (-wal) away to start over"
            }
            Self::Foreign { .. } => "nothing was changed; use another home folder with --home",
            Self::Newer { .. } => "nothing was changed; use the newer program that wrote it",
            Self::Full { .. } => {
                "nothing was lost; free some space, then resume interrupted tasks: `polity task \
                 resume --all`"
            }
            Self::NotWritable { .. } => {
                "check the permissions of the home folder, or use another with --home"
            }
            Self::Busy { .. } => "try again, or end the process that holds it",
            Self::Unreadable { .. } => {
                "the journal was written by another version or was damaged; \
                 restore a backup with `polity restore FILE`"
            }
            Self::InUse { .. } => {
                "nothing was changed; wait until no process uses this home, then try again"
            }
            Self::Exists { .. } => "nothing was overwritten; name a file that does not exist yet",
            Self::Missing { .. } => "check the path",
            Self::Failed { .. } | Self::Closed => "check the disk and try again",
        }
    }
}
