//! The files of a run in the data folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polity_files::{create_private_folders, remove_tree};
use polity_model::ids::ExecutionId;

pub(crate) use crate::process::run_record::RUNS;

const RECORD_SUFFIX: &str = ".json";

const PRIVATE_SUFFIX: &str = ".files";

/// The paths of one run's files.
#[derive(Debug)]
pub(crate) struct RunFiles {
    /// The record that the shim writes.
    pub(crate) record: PathBuf,
    /// The folder of private files. It is removed at the end of the run.
    pub(crate) private: PathBuf,
    /// The output folder, relative to the data folder.
    pub(crate) output: String,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
}

impl RunFiles {
    pub(crate) fn new(data: &Path, execution_id: ExecutionId, attempt: u32) -> Self {
        let run = data.join(RUNS).join(format!("{execution_id}-{attempt}"));
        let with_suffix = |suffix: &str| {
            let mut path = run.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        let output = format!("output/{execution_id}/{attempt}");
        let folder = data.join(&output);
        Self {
            record: with_suffix(RECORD_SUFFIX),
            private: with_suffix(PRIVATE_SUFFIX),
            stdout: folder.join("stdout"),
            stderr: folder.join("stderr"),
            output,
        }
    }

    /// Creates the folder of records.
    pub(crate) fn create_folder(&self) -> io::Result<()> {
        self.record.parent().map_or(Ok(()), create_private_folders)
    }

    pub(crate) fn remove_private(&self) -> io::Result<()> {
        remove_tree(&self.private)
    }

    /// Removes all files except the output. Returns true if there was a record.
    pub(crate) fn remove(&self) -> io::Result<bool> {
        self.remove_private()?;
        match fs::remove_file(&self.record) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// True if this is the file name of a record.
pub(crate) fn is_record(name: &str) -> bool {
    name.ends_with(RECORD_SUFFIX)
}

/// Treats a missing file as success.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
