//! Removes the files and workspaces of runs whose owners died.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use polity_files::remove_tree;
use polity_model::ids::ExecutionId;

use crate::cli::CliDriver;
use crate::cli::run::files::{RUNS, is_record};
use crate::cli::workspace::{self, BranchPolicy, WORKSPACES};
use crate::process::run_record::ShimRecord;

/// The length of an execution id, with which file names start.
const ID_CHARACTERS: usize = 36;

impl CliDriver {
    pub(crate) fn executions_with_files(&self) -> io::Result<BTreeSet<ExecutionId>> {
        let mut all = BTreeSet::new();
        for folder in [RUNS, WORKSPACES] {
            for name in file_names(&self.options.data.join(folder))? {
                let id = name.get(..ID_CHARACTERS);
                all.extend(id.and_then(|id| id.parse::<ExecutionId>().ok()));
            }
        }
        Ok(all)
    }

    /// Removes the files of an execution, unless its shim is still running.
    pub(crate) fn remove_files(&self, id: ExecutionId, keeps_workspace: bool) -> io::Result<()> {
        let (data, prefix) = (&self.options.data, id.to_string());
        let runs = data.join(RUNS);
        let mut files: Vec<_> = file_names(&runs)?;
        files.retain(|name| name.starts_with(&prefix));
        for record in files.iter().filter(|name| is_record(name)) {
            if let Some(record) = ShimRecord::open(&runs.join(record))?
                && !record.is_free()?
            {
                return Ok(());
            }
        }
        for path in files.iter().map(|name| runs.join(name)) {
            remove_tree(&path)?;
        }
        if keeps_workspace {
            return Ok(());
        }
        workspace::discard(&self.options, id, BranchPolicy::Delete)
    }
}

fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
