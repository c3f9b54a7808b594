//! Folders of their own in which programs run: copies, and worktrees of Git.
//!
//! A workspace has the name of its execution. It is made for each run, stays where the run succeeds,
//! and goes where it does not. `copying` copies folders, `git` asks Git.

mod copying;
mod git;

use std::io;
use std::path::{Path, PathBuf};

use polity_definition::{CliAgent, Workspace};
use polity_engine::driver::NotReady;
use polity_model::failure::Failure;
use polity_model::ids::ExecutionId;
use polity_model::run::KeptWorkspace;
use tokio::sync::watch;

use self::git::Git;
use super::run::system_error;
use super::verdict;
use crate::environment::Environment;

/// The folder below the data folder in which workspaces are.
pub(super) const WORKSPACES: &str = "workspaces";

/// How the branches of worktrees begin.
const BRANCHES: &str = "polity/";

/// The workspace of an execution.
#[derive(Debug, Clone)]
pub(super) struct Space {
    kind: Workspace,
    /// The folder that it stands for.
    source: PathBuf,
    data: PathBuf,
    root: PathBuf,
    name: String,
    git: Git,
}

/// Why there is no workspace.
pub(super) enum NotMade {
    /// Someone wants the run to end.
    Stopped,
    /// Something is wrong.
    Failed(Failure),
}

impl Space {
    /// The workspace of an execution, if its agent has one.
    pub(super) fn of(
        agent: &CliAgent,
        source: PathBuf,
        data: &Path,
        execution_id: ExecutionId,
        environment: &Environment,
    ) -> Option<Self> {
        match agent.workspace {
            Workspace::Shared => None,
            kind @ (Workspace::Worktree | Workspace::Copy) => {
                let name = execution_id.to_string();
                let (data, root) = (data.to_owned(), data.join(WORKSPACES).join(&name));
                Some(Self { kind, source, data, root, name, git: Git::new(environment) })
            }
        }
    }

    fn branch(&self) -> String {
        format!("{BRANCHES}{}", self.name)
    }

    /// Makes it anew, whatever an earlier run left of it. Says where the program runs in it.
    pub(super) fn make(&self, stop: &watch::Receiver<bool>) -> Result<PathBuf, NotMade> {
        let failed = |error: io::Error| {
            let (source, root) = (self.source.display(), self.root.display());
            let message = format!("the workspace {root} of {source} cannot be made: {error}");
            NotMade::Failed(system_error(&message))
        };
        remove(&self.root, &self.git, Branch::Goes).map_err(failed)?;
        let parent = self.root.parent().map_or(Ok(()), std::fs::create_dir_all);
        parent.map_err(failed)?;
        match self.kind {
            Workspace::Worktree => {
                self.git.add(&self.source, &self.root, &self.branch()).map_err(|error| {
                    use polity_model::failure::ErrorCategory::Permanent;
                    NotMade::Failed(verdict::failure(Permanent, &error.to_string()))
                })
            }
            Workspace::Copy | Workspace::Shared => {
                let is_whole = copying::copy(&self.source, &self.root, &self.data, stop);
                if is_whole.map_err(failed)? {
                    Ok(self.root.clone())
                } else {
                    Err(NotMade::Stopped)
                }
            }
        }
    }

    /// Where the program ran in it, if it is there.
    pub(super) fn folder(&self) -> PathBuf {
        match self.kind {
            Workspace::Worktree => {
                let prefix = self.git.prefix(&self.source).unwrap_or_default();
                self.root.join(prefix)
            }
            Workspace::Copy | Workspace::Shared => self.root.clone(),
        }
    }

    /// Leaves it as the program left it, and says what changed.
    pub(super) fn keep(&self) -> KeptWorkspace {
        let changed = match self.kind {
            Workspace::Worktree => self.git.commit(&self.root).map_err(|error| error.to_string()),
            Workspace::Copy | Workspace::Shared => {
                copying::differences(&self.source, &self.root, &self.data)
                    .map_err(|error| error.to_string())
            }
        };
        let branch = match self.kind {
            Workspace::Worktree => Some(self.branch()),
            Workspace::Copy | Workspace::Shared => None,
        };
        let (changed_files, problem) = match changed {
            Ok(changed_files) => (changed_files, None),
            Err(error) => (0, Some(format!("the changes could not be put in order: {error}"))),
        };
        KeptWorkspace {
            folder: format!("{WORKSPACES}/{}", self.name),
            branch,
            changed_files,
            problem,
        }
    }

    /// Removes it.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.root, &self.git, Branch::Goes)
    }
}

/// What becomes of the branch of a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Branch {
    /// It goes with it.
    Goes,
    /// It stays, because someone may want what is on it.
    Stays,
}

/// Removes a workspace, whatever it is.
pub(super) fn remove_of(
    data: &Path,
    execution_id: ExecutionId,
    environment: &Environment,
    branch: Branch,
) -> io::Result<()> {
    let root = data.join(WORKSPACES).join(execution_id.to_string());
    remove(&root, &Git::new(environment), branch)
}

fn remove(root: &Path, git: &Git, branch: Branch) -> io::Result<()> {
    if !root.try_exists()? {
        return Ok(());
    }
    let name = root.file_name().map(|name| name.to_string_lossy().into_owned());
    // A worktree has a file where a repository has a folder.
    if root.join(".git").is_file() {
        let name = name.filter(|_| branch == Branch::Goes).map(|name| format!("{BRANCHES}{name}"));
        if let Err(error) = git.remove(root, name.as_deref()) {
            tracing::warn!(path = %root.display(), %error, "a worktree is not removed by Git");
        }
    }
    copying::remove(root)
}

/// Whether a workspace could be made of a folder, as far as can be told without making one.
pub(super) fn check(agent: &CliAgent, name: &str, source: &Path) -> Result<(), NotReady> {
    match agent.workspace {
        Workspace::Shared | Workspace::Copy => Ok(()),
        Workspace::Worktree if source.ancestors().any(|folder| folder.join(".git").exists()) => {
            Ok(())
        }
        Workspace::Worktree => Err(NotReady {
            message: format!(
                "the agent \"{name}\" runs in a worktree, but {} is in no Git repository",
                source.display()
            ),
            hint: "run `git init` there and commit, or set workspace to copy".to_owned(),
        }),
    }
}
