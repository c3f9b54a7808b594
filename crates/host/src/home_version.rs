//! The version of a home's files, by which a long-running process notices changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// The state of one file: its time of change, its size and its number in the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

impl FileVersion {
    fn of(path: &PathBuf) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = fs::metadata(path).ok()?;
        let (modified, bytes) = (metadata.modified().ok()?, metadata.len());
        Some(Self { modified, bytes, inode: metadata.ino() })
    }
}

/// The files that definitions were read from, with their versions. A missing file has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeVersion {
    definitions: BTreeMap<PathBuf, Option<FileVersion>>,
    scripts: BTreeMap<PathBuf, Option<FileVersion>>,
}

impl HomeVersion {
    pub(crate) fn of(definitions: Vec<PathBuf>, scripts: Vec<PathBuf>) -> Self {
        let versions = |paths: Vec<PathBuf>| {
            paths.into_iter().map(|path| (path.clone(), FileVersion::of(&path))).collect()
        };
        Self { definitions: versions(definitions), scripts: versions(scripts) }
    }

    /// The same files that steps were read from, and these definition files, as they are now.
    pub(crate) fn again(&self, definitions: Vec<PathBuf>) -> Self {
        Self::of(definitions, self.scripts.keys().cloned().collect())
    }
}
