//! The outcome of one CLI agent run or remote attempt, as the journal records it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::remote::RemoteReport;

/// The exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal, with this number.
    Signal(i32),
}

impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// The resources that a process and its descendants used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceUsage {
    /// The share of one processor that was used, in percent; more than 100 with several.
    pub cpu_percent: f64,
    /// The processor time, in milliseconds.
    pub cpu_time_ms: u64,
    /// The last measured memory, in megabytes.
    pub memory_mb: u64,
    /// The peak memory, in megabytes.
    pub peak_memory_mb: u64,
    /// Disk reads, in megabytes.
    pub disk_read_mb: u64,
    /// Disk writes, in megabytes.
    pub disk_write_mb: u64,
}

/// The output files of a process. Secrets in them are masked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFiles {
    /// The folder below `data/` that has the files `stdout` and `stderr`.
    pub folder: String,
    /// The bytes written to stdout.
    pub stdout_bytes: u64,
    /// The bytes written to stderr.
    pub stderr_bytes: u64,
    /// True if the files hold only a part of the output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Artifacts: files saved from the working directory of a run. Secrets in them are masked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunArtifacts {
    /// The folder below `data/` that has them.
    pub folder: String,
    /// The saved files, by their paths in the working directory.
    pub files: Vec<RunArtifact>,
    /// Some of the files that were not saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedFile>,
    /// The number of files that were not saved.
    #[serde(default)]
    pub left_out_count: u64,
}

impl RunArtifacts {
    /// True if no file matched.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left_out_count == 0
    }
}

/// A saved file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunArtifact {
    /// Its path.
    pub path: String,
    /// The length of the saved file.
    pub bytes: u64,
    /// The SHA-256 of the saved file.
    pub sha256: Digest,
    /// True if secrets in it were masked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// A file that matched a pattern but was not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedFile {
    /// Its path.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// The run's own workspace after the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWorkspace {
    /// The folder below `data/`.
    pub folder: String,
    /// The branch with the changes, for a worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The number of files added, changed or removed.
    pub changed_files: u64,
    /// The problem with collecting the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl fmt::Display for SavedWorkspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, branch, changed_files, problem } = self;
        let files = if *changed_files == 1 { "file" } else { "files" };
        write!(f, "{changed_files} {files} changed in data/{folder}")?;
        if let Some(branch) = branch {
            write!(f, ", on the branch {branch}")?;
        }
        problem.as_ref().map_or(Ok(()), |problem| write!(f, " ({problem})"))
    }
}

/// The outcome of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The process, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    /// The exit status, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// The duration.
    pub duration_ms: u64,
    /// The resources used.
    #[serde(default)]
    pub resource_usage: ResourceUsage,
    /// The output files.
    #[serde(default)]
    pub output: OutputFiles,
    /// The CLI agent's own session id, if it reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The last lines of stderr, if it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// The saved artifacts.
    #[serde(default, skip_serializing_if = "RunArtifacts::is_empty")]
    pub artifacts: RunArtifacts,
    /// The run's own workspace, if it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<SavedWorkspace>,
    /// The outcome on the remote server, for remote agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReport>,
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
        if let Some(remote) = &self.remote {
            return f.write_str(&remote.after(seconds(self.duration_ms)));
        }
        let Some(exit) = self.exit else {
            let started = self.process_id.is_some();
            return f.write_str(if started { "unknown exit status" } else { "not started" });
        };
        let used = &self.resource_usage;
        write!(f, "{exit} after {:.1} s", seconds(self.duration_ms))?;
        write!(f, ", {:.1} s of CPU, {} MB", seconds(used.cpu_time_ms), used.peak_memory_mb)?;
        if !self.artifacts.is_empty() {
            let RunArtifacts { files, left_out_count, .. } = &self.artifacts;
            let kept = if files.len() == 1 { "artifact" } else { "artifacts" };
            write!(f, "; {} {kept} kept, {left_out_count} not", files.len())?;
        }
        self.workspace.as_ref().map_or(Ok(()), |workspace| write!(f, "; {workspace}"))
    }
}
