//! Runs: what one attempt to run a program, or to have another server do the work, came to, as the
//! journal keeps it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::remote::RemoteReport;

/// How a process ended.
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

/// What a program and everything it started used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceUsage {
    /// The share of one processor that was used, in percent; more than 100 with several.
    pub cpu_percent: f64,
    /// The processor time, in milliseconds.
    pub cpu_time_ms: u64,
    /// The memory in use when it was last looked at, in megabytes.
    pub memory_mb: u64,
    /// The most memory that was seen in use at once, in megabytes.
    pub peak_memory_mb: u64,
    /// What was read from disks, in megabytes.
    pub disk_read_mb: u64,
    /// What was written to disks, in megabytes.
    pub disk_write_mb: u64,
}

/// What a program wrote, and where it is kept. It is kept without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFiles {
    /// The folder below `data/` that has the files `stdout` and `stderr`.
    pub folder: String,
    /// How much it wrote to stdout, in bytes.
    pub stdout_bytes: u64,
    /// How much it wrote to stderr, in bytes.
    pub stderr_bytes: u64,
    /// Whether it wrote more than is kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

/// Files that are kept of the folder in which a program ran. They are kept without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunArtifacts {
    /// The folder below `data/` that has them.
    pub folder: String,
    /// Those that are kept, by their paths in the folder in which the program ran.
    pub files: Vec<RunArtifact>,
    /// Some of those that are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<OmittedFile>,
    /// How many are not.
    #[serde(default)]
    pub left_out_count: u64,
}

impl RunArtifacts {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left_out_count == 0
    }
}

/// A file that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunArtifact {
    /// Its path.
    pub path: String,
    /// How long it is as it is kept.
    pub bytes: u64,
    /// The SHA-256 of what is kept.
    pub sha256: Digest,
    /// Whether secrets in it were masked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// A file that is not kept although a pattern means it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedFile {
    /// Its path.
    pub path: String,
    /// Why it is not kept.
    pub reason: String,
}

/// The folder of its own in which a program ran, as it was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedWorkspace {
    /// The folder below `data/`.
    pub folder: String,
    /// The branch that has the changes, where it is a worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How many files were added, changed or removed.
    pub changed_files: u64,
    /// What went wrong when the changes were put in order.
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

/// What one run of a program came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The process, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    /// How it ended, if it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// How long it took.
    pub duration_ms: u64,
    /// What it used.
    #[serde(default)]
    pub resource_usage: ResourceUsage,
    /// What it wrote.
    #[serde(default)]
    pub output: OutputFiles,
    /// The program's own name for its conversation, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The last lines of its error output, where it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_words: String,
    /// Files that are kept of it.
    #[serde(default, skip_serializing_if = "RunArtifacts::is_empty")]
    pub artifacts: RunArtifacts,
    /// The folder of its own in which it ran, where that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<SavedWorkspace>,
    /// What became of it on another server, where that does the work.
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
            return f.write_str(if started { "it is not known how" } else { "not started" });
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
