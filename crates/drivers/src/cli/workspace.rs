//! Workspaces: private copies or Git worktrees in which runs take place.
//!
//! A workspace is named after its execution and made anew for each run. A successful run keeps it,
//! any other removes it. `file_tree` copies and compares folders, `git` manages worktrees,
//! `artifacts` collects files.

pub(crate) mod artifacts;
mod file_tree;
mod git;
mod git_config;

use std::io;
use std::path::{Path, PathBuf};

use polity_definition::{CliAgent, WorkspaceMode};
use polity_engine::driver::NotReady;
use polity_files::{create_private_folders, remove_tree_until};
use polity_model::failure::AttemptFailure;
use polity_model::ids::ExecutionId;
use polity_model::run::SavedWorkspace;
use tokio::sync::watch;

use self::git::GitCommand;
use crate::cli::CliOptions;
use crate::cli::outcome::verdict;
use crate::cli::run::system_error;

/// The folder of workspaces, in the data folder.
pub(crate) const WORKSPACES: &str = "workspaces";

const BRANCHES: &str = "polity/";

#[derive(Debug, Clone)]
pub(crate) struct RunWorkspace {
    kind: WorkspaceMode,
    /// The folder that the workspace replaces.
    source: PathBuf,
    data: PathBuf,
    root: PathBuf,
    name: String,
    git: GitCommand,
}

/// The reason that a workspace could not be made.
pub(crate) enum WorkspaceError {
    Stopped,
    Failed(AttemptFailure),
}

impl RunWorkspace {
    /// The workspace of an execution, if its agent uses one.
    pub(crate) fn for_agent(
        agent: &CliAgent,
        source: PathBuf,
        execution_id: ExecutionId,
        options: &CliOptions,
    ) -> Option<Self> {
        match agent.workspace {
            WorkspaceMode::Shared => None,
            kind @ (WorkspaceMode::Worktree | WorkspaceMode::Copy) => {
                let name = execution_id.to_string();
                let data = options.data.clone();
                let root = data.join(WORKSPACES).join(&name);
                Some(Self { kind, source, data, root, name, git: GitCommand::new(options) })
            }
        }
    }

    fn branch(&self) -> String {
        format!("{BRANCHES}{}", self.name)
    }

    /// Creates the workspace, replacing one of an earlier run. Returns the working directory in it.
    pub(crate) fn create(&self, stop: &watch::Receiver<bool>) -> Result<PathBuf, WorkspaceError> {
        let failed = |error: io::Error| {
            let (source, root) = (self.source.display(), self.root.display());
            let message = format!("the workspace {root} of {source} cannot be made: {error}");
            WorkspaceError::Failed(system_error(&message))
        };
        match remove(&self.root, &self.git, BranchPolicy::Delete, Some(stop)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(WorkspaceError::Stopped);
            }
            removed => removed.map_err(failed)?,
        }
        let parent = self.root.parent().map_or(Ok(()), create_private_folders);
        parent.map_err(failed)?;
        match self.kind {
            WorkspaceMode::Worktree => {
                let added = self.git.add_worktree(&self.source, &self.root, &self.branch(), stop);
                added.map_err(|error| {
                    use polity_model::failure::ErrorCategory::Permanent;
                    if error.is_stop() {
                        return WorkspaceError::Stopped;
                    }
                    WorkspaceError::Failed(verdict::failure(Permanent, &error.to_string()))
                })
            }
            WorkspaceMode::Copy | WorkspaceMode::Shared => {
                let is_complete = file_tree::copy_tree(&self.source, &self.root, &self.data, stop);
                if is_complete.map_err(failed)? {
                    Ok(self.root.clone())
                } else {
                    Err(WorkspaceError::Stopped)
                }
            }
        }
    }

    /// The working directory in the workspace. Blocks.
    pub(crate) fn working_directory(&self, stop: &watch::Receiver<bool>) -> PathBuf {
        match self.kind {
            WorkspaceMode::Worktree => {
                let prefix = self.git.repository_prefix(&self.source, stop).unwrap_or_default();
                self.root.join(prefix)
            }
            WorkspaceMode::Copy | WorkspaceMode::Shared => self.root.clone(),
        }
    }

    /// Keeps the workspace and counts the changes.
    pub(crate) fn finish(&self, stop: &watch::Receiver<bool>) -> SavedWorkspace {
        let (branch, changed) = match self.kind {
            WorkspaceMode::Worktree => {
                let changed = self.git.commit_changes(&self.root, stop);
                (Some(self.branch()), changed.map_err(|error| error.to_string()))
            }
            WorkspaceMode::Copy | WorkspaceMode::Shared => {
                let changed =
                    file_tree::count_differences(&self.source, &self.root, &self.data, stop);
                (None, changed.map_err(|error| error.to_string()))
            }
        };
        let (changed_files, problem) = match changed {
            Ok(changed_files) => (changed_files, None),
            Err(error) => (0, Some(format!("the changes could not be counted: {error}"))),
        };
        let folder = format!("{WORKSPACES}/{}", self.name);
        SavedWorkspace { folder, branch, changed_files, problem }
    }

    pub(crate) fn remove(&self, stop: &watch::Receiver<bool>) -> io::Result<()> {
        remove(&self.root, &self.git, BranchPolicy::Delete, Some(stop))
    }
}

/// The handling of a worktree's branch on removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BranchPolicy {
    Delete,
    /// Keep it: it may hold results.
    Keep,
}

/// Removes the workspace of an execution, if there is one.
pub(crate) fn discard(
    options: &CliOptions,
    execution_id: ExecutionId,
    branch: BranchPolicy,
) -> io::Result<()> {
    let root = options.data.join(WORKSPACES).join(execution_id.to_string());
    remove(&root, &GitCommand::new(options), branch, None)
}

fn remove(
    root: &Path,
    git: &GitCommand,
    branch: BranchPolicy,
    stop: Option<&watch::Receiver<bool>>,
) -> io::Result<()> {
    let is_folder = root.symlink_metadata().is_ok_and(|about| about.is_dir());
    // In a worktree `.git` is a file, in a repository a folder.
    let is_worktree = is_folder && root.join(".git").is_file();
    let repository = is_worktree.then(|| git.common_dir(root, &git.removing(stop)));
    // Git would follow folders of any depth on its stack. Each step has its own time after a stop;
    // a removal that takes longer continues at the next start.
    let removal = git.removing(stop);
    let removed = remove_tree_until(root, &|| removal.is_stopped());
    let Some(repository) = repository else { return removed };
    let work = git.removing(stop);
    let name = root.file_name().filter(|_| branch == BranchPolicy::Delete);
    let name = name.map(|name| format!("{BRANCHES}{}", name.to_string_lossy()));
    let forgotten =
        repository.and_then(|common| git.forget_worktree(&common, root, name.as_deref(), &work));
    if let Err(error) = forgotten {
        tracing::warn!(path = %root.display(), %error, "Git cannot remove a worktree");
    }
    removed
}

/// Checks that a workspace could be made, without making one.
pub(crate) fn check(agent: &CliAgent, name: &str, source: &Path) -> Result<(), NotReady> {
    let is_in_repository = || source.ancestors().any(|folder| folder.join(".git").exists());
    if agent.workspace != WorkspaceMode::Worktree || is_in_repository() {
        return Ok(());
    }
    Err(NotReady {
        message: format!(
            "the agent \"{name}\" runs in a worktree, but {} is not in a Git repository",
            source.display()
        ),
        hint: "run `git init` there and commit, or set workspace to copy".to_owned(),
    })
}
