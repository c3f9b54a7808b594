//! Runs Git for worktrees, without hooks and prompts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

use crate::environment::EnvSource;
use crate::regular_file::read_regular_file;

/// The file with the base commit, in the Git directory of a worktree.
const BASE_FILE: &str = "polity_base";

#[derive(Debug, Error)]
pub(crate) enum GitError {
    #[error("git cannot be started: {0}; install it, or set workspace to copy")]
    NotStarted(#[source] std::io::Error),
    #[error("git refused to {action} in {}: {message}", folder.display())]
    Refused { action: &'static str, folder: PathBuf, message: String },
    #[error("{} is a Git repository without a commit; make one first, or set workspace to copy", .0.display())]
    NoCommit(PathBuf),
    /// The Git directory of the worktree cannot be used.
    #[error("the Git directory of the worktree cannot be used: {0}")]
    Io(#[from] std::io::Error),
}

#[derive(Debug, Clone)]
pub(crate) struct GitCommand {
    variables: BTreeMap<String, String>,
}

impl GitCommand {
    pub(crate) fn new(environment: &EnvSource) -> Self {
        let mut variables = environment.inherited();
        variables.insert("LC_ALL".to_owned(), "C".to_owned());
        variables.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
        Self { variables }
    }

    /// Creates a worktree of the newest commit on a new branch. Returns its counterpart of
    /// `source`.
    pub(crate) fn add_worktree(
        &self,
        source: &Path,
        root: &Path,
        branch: &str,
    ) -> Result<PathBuf, GitError> {
        let prefix = self.repository_prefix(source)?;
        let base = self.run(source, "find the newest commit", &["rev-parse", "--verify", "HEAD"]);
        let base = base.map_err(|_| GitError::NoCommit(source.to_owned()))?;
        // A worktree that was deleted by hand is still registered.
        self.run(source, "forget old worktrees", &["worktree", "prune"])?;
        let root_text = root.to_string_lossy();
        let add = ["worktree", "add", "--quiet", "-B", branch, root_text.as_ref(), base.as_str()];
        self.run(source, "add a worktree", &add)?;
        fs::write(self.git_dir(root)?.join(BASE_FILE), &base)?;
        let folder = root.join(&prefix);
        // The folder may contain no tracked files.
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The path of a folder relative to its repository.
    pub(crate) fn repository_prefix(&self, folder: &Path) -> Result<String, GitError> {
        self.run(folder, "find the repository", &["rev-parse", "--show-prefix"])
    }

    /// Commits all uncommitted changes. Returns the number of files changed since the base commit.
    pub(crate) fn commit_changes(&self, root: &Path) -> Result<u64, GitError> {
        let base = read_regular_file(&self.git_dir(root)?.join(BASE_FILE))?;
        let base = String::from_utf8_lossy(&base);
        self.run(root, "add all changes", &["add", "--all"])?;
        let is_dirty = !self.run(root, "look for changes", &["status", "--porcelain"])?.is_empty();
        if is_dirty {
            let args = ["commit", "--quiet", "--no-verify", "--message", "What the agent changed"];
            self.run(root, "commit the changes", &args)?;
        }
        let changed = ["diff", "--name-only", "--no-renames", base.trim(), "HEAD"];
        let changed = self.run(root, "list the changes", &changed)?;
        Ok(changed.lines().count() as u64)
    }

    pub(crate) fn remove_worktree(
        &self,
        root: &Path,
        branch: Option<&str>,
    ) -> Result<(), GitError> {
        let common = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let common = PathBuf::from(self.run(root, "find the repository", &common)?);
        let root_text = root.to_string_lossy();
        let remove = ["worktree", "remove", "--force", "--force", root_text.as_ref()];
        self.run(&common, "remove the worktree", &remove)?;
        if let Some(branch) = branch {
            self.run(&common, "remove the branch", &["branch", "--quiet", "-D", branch])?;
        }
        Ok(())
    }

    fn git_dir(&self, root: &Path) -> Result<PathBuf, GitError> {
        let own = ["rev-parse", "--path-format=absolute", "--git-dir"];
        Ok(self.run(root, "find the worktree", &own)?.into())
    }

    fn run(&self, folder: &Path, action: &'static str, args: &[&str]) -> Result<String, GitError> {
        #[expect(clippy::disallowed_methods, reason = "Git ends by itself")]
        let output = Command::new("git")
            .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"])
            .args(["-c", "user.name=Polity", "-c", "user.email=polity@localhost"])
            .args(args)
            .current_dir(folder)
            .env_clear()
            .envs(&self.variables)
            .stdin(Stdio::null())
            .output()
            .map_err(GitError::NotStarted)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let (folder, message) = (folder.to_owned(), text(&output.stderr));
        Err(GitError::Refused { action, folder, message })
    }
}
