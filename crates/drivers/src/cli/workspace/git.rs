//! Runs Git for worktrees, so that the repository cannot make it run anything else.
//!
//! An agent may write to its repository: its configuration, hooks, attributes and nested
//! repositories. Git would run commands from there. So Git reads no configuration of the user or the
//! system, and every setting of the repository that starts a command is overridden (`git_config`).
//! Only commands are used that need no other program. Git runs through the shim, with a timeout.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::git_config::GitEnvironment;
use crate::cli::CliOptions;
use crate::process::{
    BlockingRunError, BlockingRunLimits, BlockingRunOutput, ProcessCommand, ProcessLauncher,
    find_executable,
};
use crate::regular_file::read_regular_file;

/// The maximum duration of one Git command. Creating a worktree of a large repository takes minutes.
const GIT_TIMEOUT: Duration = Duration::from_mins(10);

/// The file with the base commit, in the Git directory of a worktree.
const BASE_FILE: &str = "polity_base";

const COMMIT_MESSAGE: &str = "What the agent changed";

#[derive(Debug, Error)]
pub(crate) enum GitError {
    #[error("git is not on the PATH; install it, or set workspace to copy")]
    NotFound,
    #[error("git could not {action} in {}: {error}", folder.display())]
    NotRun { action: &'static str, folder: PathBuf, error: BlockingRunError },
    #[error("git refused to {action} in {}: {message}", folder.display())]
    Refused { action: &'static str, folder: PathBuf, message: String },
    #[error("{} is a Git repository without a commit; make one first, or set workspace to copy", .0.display())]
    NoCommit(PathBuf),
    /// The Git directory of the worktree cannot be used.
    #[error("the Git directory of the worktree cannot be used: {0}")]
    Io(#[from] std::io::Error),
}

impl GitError {
    /// True if the run was stopped meanwhile.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::NotRun { error: BlockingRunError::Stopped, .. })
    }
}

/// Git with the environment of a home. Its methods block.
#[derive(Debug, Clone)]
pub(crate) struct GitCommand {
    executable: Option<PathBuf>,
    launcher: ProcessLauncher,
    environment: GitEnvironment,
    timeout: Duration,
}

/// Git in one folder, with the commands of its repository disabled.
struct GitFolder<'a> {
    git: &'a GitCommand,
    folder: &'a Path,
    variables: Vec<(String, String)>,
    stop: Option<&'a watch::Receiver<bool>>,
}

impl GitCommand {
    pub(crate) fn new(options: &CliOptions) -> Self {
        let folders = options.environment.raw("PATH").unwrap_or_default();
        Self {
            executable: find_executable("git", &options.home, &folders),
            launcher: options.launcher.clone(),
            environment: GitEnvironment::new(&options.environment),
            timeout: GIT_TIMEOUT,
        }
    }

    /// Creates a worktree of the newest commit on a new branch. Returns its counterpart of
    /// `source`.
    pub(crate) fn add_worktree(
        &self,
        source: &Path,
        root: &Path,
        branch: &str,
        stop: &watch::Receiver<bool>,
    ) -> Result<PathBuf, GitError> {
        let git = self.within(source, Some(stop))?;
        let prefix = git.text("find the repository", &["rev-parse", "--show-prefix"])?;
        let base = match git.text("find the newest commit", &["rev-parse", "--verify", "HEAD"]) {
            Err(GitError::Refused { .. }) => return Err(GitError::NoCommit(source.to_owned())),
            base => base?,
        };
        // A worktree that was deleted by hand is still registered.
        git.text("forget old worktrees", &["worktree", "prune"])?;
        let root_text = root.to_string_lossy();
        let add = ["worktree", "add", "--quiet", "--no-checkout", "-B", branch, &root_text, &base];
        git.text("add a worktree", &add)?;
        // Settings may depend on the branch and the folder, so they are looked up again.
        let git = self.within(root, Some(stop))?;
        git.text("check out the files", &["read-tree", "-m", "-u", "HEAD"])?;
        fs::write(git.git_dir()?.join(BASE_FILE), &base)?;
        let folder = root.join(&prefix);
        // The folder may contain no tracked files.
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The path of a folder relative to its repository.
    pub(crate) fn repository_prefix(&self, folder: &Path) -> Result<String, GitError> {
        let git = self.within(folder, None)?;
        git.text("find the repository", &["rev-parse", "--show-prefix"])
    }

    /// Commits all uncommitted changes, except those within submodules. Returns the number of files
    /// changed since the base commit.
    pub(crate) fn commit_changes(&self, root: &Path) -> Result<u64, GitError> {
        let git = self.within(root, None)?;
        let base = read_regular_file(&git.git_dir()?.join(BASE_FILE))?;
        let base = String::from_utf8_lossy(&base);
        // `git add` would run Git in each submodule, with the configuration there.
        for list in [
            &["diff-files", "-z", "--name-only", "--ignore-submodules=all"][..],
            &["ls-files", "-z", "--others", "--exclude-standard"],
        ] {
            let paths = git.run("list the changes", list, b"")?.stdout;
            let add = ["update-index", "-z", "--add", "--remove", "--stdin"];
            git.run("add all changes", &add, &paths)?;
        }
        let head = git.text("find the newest commit", &["rev-parse", "--verify", "HEAD"])?;
        let tree = git.text("write the files", &["write-tree"])?;
        if tree != git.text("find the files", &["rev-parse", "--verify", "HEAD^{tree}"])? {
            let commit = ["commit-tree", "-p", &head, "-m", COMMIT_MESSAGE, &tree];
            let commit = git.text("commit the changes", &commit)?;
            let update = ["update-ref", "-m", COMMIT_MESSAGE, "HEAD", &commit, &head];
            git.text("update the branch", &update)?;
        }
        let changed = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", base.trim(), "HEAD"];
        let changed = git.run("list the changes", &changed, b"")?.stdout;
        Ok(memchr::memchr_iter(0, &changed).count() as u64)
    }

    pub(crate) fn remove_worktree(
        &self,
        root: &Path,
        branch: Option<&str>,
    ) -> Result<(), GitError> {
        let common = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let common = self.within(root, None)?.path("find the repository", &common)?;
        let git = self.within(&common, None)?;
        let root_text = root.to_string_lossy();
        let remove = ["worktree", "remove", "--force", "--force", root_text.as_ref()];
        git.text("remove the worktree", &remove)?;
        if let Some(branch) = branch {
            git.text("remove the branch", &["branch", "--quiet", "-D", branch])?;
        }
        Ok(())
    }

    /// Git in this folder, with all commands disabled that its configuration names.
    fn within<'a>(
        &'a self,
        folder: &'a Path,
        stop: Option<&'a watch::Receiver<bool>>,
    ) -> Result<GitFolder<'a>, GitError> {
        let action = "read the configuration";
        let trusted = GitFolder { git: self, folder, variables: self.environment.of_user(), stop };
        let trusted = trusted.list(action, &GitEnvironment::LIST_TRUSTED_FOLDERS)?;
        let mut variables = self.environment.hardened(&trusted);
        let hardened = GitFolder { git: self, folder, variables: variables.clone(), stop };
        let names = hardened.list(action, &GitEnvironment::LIST_COMMANDS)?;
        GitEnvironment::disable_commands(&mut variables, &names)
            .map_err(|message| GitError::Refused { action, folder: folder.to_owned(), message })?;
        Ok(GitFolder { git: self, folder, variables, stop })
    }
}

impl GitFolder<'_> {
    fn git_dir(&self) -> Result<PathBuf, GitError> {
        self.path("find the worktree", &["rev-parse", "--path-format=absolute", "--git-dir"])
    }

    fn path(&self, action: &'static str, args: &[&str]) -> Result<PathBuf, GitError> {
        let output = self.run(action, args, b"")?.stdout;
        Ok(OsStr::from_bytes(output.trim_ascii_end()).into())
    }

    fn text(&self, action: &'static str, args: &[&str]) -> Result<String, GitError> {
        let output = self.run(action, args, b"")?.stdout;
        Ok(String::from_utf8_lossy(output.trim_ascii()).into_owned())
    }

    /// A list of settings. Git exits with 1 if there is none.
    fn list(&self, action: &'static str, args: &[&str]) -> Result<Vec<u8>, GitError> {
        let output = self.start(action, args, b"")?;
        match output.status.code() {
            Some(0 | 1) => Ok(output.stdout),
            Some(_) | None => Err(self.refused(action, &output)),
        }
    }

    fn run(
        &self,
        action: &'static str,
        args: &[&str],
        input: &[u8],
    ) -> Result<BlockingRunOutput, GitError> {
        let output = self.start(action, args, input)?;
        if output.status.success() { Ok(output) } else { Err(self.refused(action, &output)) }
    }

    fn start(
        &self,
        action: &'static str,
        args: &[&str],
        input: &[u8],
    ) -> Result<BlockingRunOutput, GitError> {
        let program = ProcessCommand {
            path: self.git.executable.clone().ok_or(GitError::NotFound)?,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: self.variables.clone(),
            folder: self.folder.to_owned(),
        };
        let is_stopped = || self.stop.is_some_and(|stop| *stop.borrow());
        let limits = BlockingRunLimits { timeout: self.git.timeout, is_stopped: &is_stopped };
        self.git.launcher.run_to_end(&program, input, &limits).map_err(|error| {
            let folder = self.folder.to_owned();
            GitError::NotRun { action, folder, error }
        })
    }

    fn refused(&self, action: &'static str, output: &BlockingRunOutput) -> GitError {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        GitError::Refused { action, folder: self.folder.to_owned(), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::EnvSource;

    #[test]
    fn git_that_hangs_is_ended() {
        let environment = EnvSource::new(polity_testkit::mcp::environment);
        let folders = environment.raw("PATH").unwrap();
        let git = GitCommand {
            executable: find_executable("git", Path::new("/"), &folders),
            launcher: ProcessLauncher::Direct,
            environment: GitEnvironment::new(&environment),
            timeout: Duration::from_secs(1),
        };
        let folder = tempfile::tempdir().unwrap();
        let git_dir = folder.path().join(".git");
        for name in ["objects", "refs"] {
            fs::create_dir_all(git_dir.join(name)).unwrap();
        }
        fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(git_dir.join("config"), "[include]\npath = pipe\n").unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, git_dir.join("pipe"), mode).unwrap();
        let error = git.repository_prefix(folder.path()).unwrap_err().to_string();
        assert!(error.contains("did not exit within 1 s and was ended"), "{error}");
    }
}
