//! Where the files of a run are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polity_model::ids::ExecutionId;

/// The folder below the data folder in which records and private files of runs are.
pub(super) const RUNS: &str = "runs";

/// How the name of a record ends.
const RECORD_ENDING: &str = ".json";

/// How the name of a folder of private files ends.
const PRIVATE_ENDING: &str = ".files";

/// Where the files of one run are.
#[derive(Debug)]
pub(super) struct Paths {
    /// What the shim writes down.
    pub(super) record: PathBuf,
    /// Files that only the program is to see. They are removed with the run.
    pub(super) private: PathBuf,
    /// The folder of what is kept of its output, below the data folder.
    pub(super) output: String,
    pub(super) stdout: PathBuf,
    pub(super) stderr: PathBuf,
}

impl Paths {
    pub(super) fn new(data: &Path, execution_id: ExecutionId, attempt: u32) -> Self {
        let run = data.join(RUNS).join(format!("{execution_id}-{attempt}"));
        let ending = |ending: &str| {
            let mut path = run.clone().into_os_string();
            path.push(ending);
            PathBuf::from(path)
        };
        let output = format!("output/{execution_id}/{attempt}");
        let kept = data.join(&output);
        Self {
            record: ending(RECORD_ENDING),
            private: ending(PRIVATE_ENDING),
            stdout: kept.join("stdout"),
            stderr: kept.join("stderr"),
            output,
        }
    }

    /// Makes the folder in which records are.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        self.record.parent().map_or(Ok(()), fs::create_dir_all)
    }

    /// Removes what only the program was to see.
    pub(super) fn remove_private(&self) -> io::Result<()> {
        ignore_missing(fs::remove_dir_all(&self.private))
    }

    /// Removes everything but what is kept of its output. Says whether there was a record.
    pub(super) fn forget(&self) -> io::Result<bool> {
        self.remove_private()?;
        match fs::remove_file(&self.record) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether a file of that name is the record of a run.
pub(super) fn is_record(name: &str) -> bool {
    name.ends_with(RECORD_ENDING)
}

/// Done, or there was nothing to do.
pub(super) fn ignore_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
