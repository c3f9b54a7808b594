//! Runs Git for worktrees, so that the repository cannot make it run anything else.
//!
//! An agent may write to its repository: its configuration, hooks, attributes and nested
//! repositories. Git would run commands from there. So Git reads no configuration of the user or the
//! system, and every setting of the repository that starts a command is overridden (`git_config`).
//! Only commands are used that need no other program. Git runs through the shim, with a timeout.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polity_files::read_regular_file;
use thiserror::Error;
use tokio::sync::watch;

use super::git_config::GitEnvironment;
use crate::cli::CliOptions;
use crate::process::{
    BlockingRunError, BlockingRunLimits, BlockingRunOutput, ProcessCommand, ProcessLauncher,
    find_executable,
};

/// The maximum duration of Git commands. A FIFO among the files of a repository holds Git forever.
#[derive(Debug, Clone, Copy)]
struct GitLimits {
    /// Of one command. Creating a worktree of a large repository takes minutes.
    command: Duration,
    /// Of reading the configuration.
    configuration: Duration,
    /// Of all commands after a run that keeps its worktree.
    settling: Duration,
    /// Of all commands that remove a worktree. Polity removes the files itself.
    removing: Duration,
    /// Of the commands that remove a worktree, once the run is stopped.
    removing_when_stopped: Duration,
}

const GIT_LIMITS: GitLimits = GitLimits {
    command: Duration::from_mins(10),
    configuration: Duration::from_secs(10),
    settling: Duration::from_mins(2),
    removing: Duration::from_secs(10),
    removing_when_stopped: Duration::from_secs(3),
};

/// The maximum size of the file with the base commit, to which a program can write.
const BASE_BYTES_MAX: u64 = 1 << 10;

/// The maximum length of a message of Git that is shown.
const MESSAGE_CHARS_MAX: usize = 500;

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
    #[error("git could not read all folders of {}, and did not commit the files in them: {message}", folder.display())]
    Incomplete { folder: PathBuf, message: String },
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
    limits: GitLimits,
}

/// A sequence of Git commands with one stop signal and one deadline.
pub(crate) struct GitWork<'a> {
    stop: Option<&'a watch::Receiver<bool>>,
    /// The time that remains once it is stopped.
    stop_grace: Duration,
    stopped_at: Cell<Option<Instant>>,
    started_at: Instant,
    /// The maximum duration of all commands.
    limit: Duration,
}

impl GitWork<'_> {
    /// True once it is stopped and the time for that is over.
    pub(crate) fn is_stopped(&self) -> bool {
        if !self.stop.is_some_and(|stop| *stop.borrow()) {
            return false;
        }
        let stopped_at = self.stopped_at.get().unwrap_or_else(Instant::now);
        self.stopped_at.set(Some(stopped_at));
        stopped_at.elapsed() >= self.stop_grace
    }

    fn time_left(&self) -> Duration {
        self.limit.saturating_sub(self.started_at.elapsed())
    }
}

/// Git in one folder, with the commands of its repository disabled.
struct GitFolder<'a> {
    git: &'a GitCommand,
    folder: &'a Path,
    variables: Vec<(String, String)>,
    work: &'a GitWork<'a>,
}

impl GitCommand {
    pub(crate) fn new(options: &CliOptions) -> Self {
        let folders = options.environment.raw("PATH").unwrap_or_default();
        Self {
            executable: find_executable("git", &options.home, &folders),
            launcher: options.launcher.clone(),
            environment: GitEnvironment::new(&options.environment),
            limits: GIT_LIMITS,
        }
    }

    /// Work before a run.
    fn creating<'a>(&self, stop: &'a watch::Receiver<bool>) -> GitWork<'a> {
        self.work(Some(stop), Duration::ZERO, Duration::MAX)
    }

    /// Work after a run that keeps its worktree.
    fn settling<'a>(&self, stop: &'a watch::Receiver<bool>) -> GitWork<'a> {
        self.work(Some(stop), Duration::ZERO, self.limits.settling)
    }

    /// The removal of a worktree. A stopped run has a little time for it.
    pub(crate) fn removing<'a>(&self, stop: Option<&'a watch::Receiver<bool>>) -> GitWork<'a> {
        self.work(stop, self.limits.removing_when_stopped, self.limits.removing)
    }

    fn work<'a>(
        &self,
        stop: Option<&'a watch::Receiver<bool>>,
        stop_grace: Duration,
        limit: Duration,
    ) -> GitWork<'a> {
        let (stopped_at, started_at) = (Cell::new(None), Instant::now());
        GitWork { stop, stop_grace, stopped_at, started_at, limit }
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
        let work = self.creating(stop);
        let git = self.within(source, &work)?;
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
        let git = self.within(root, &work)?;
        git.text("check out the files", &["read-tree", "-m", "-u", "HEAD"])?;
        fs::write(git.git_dir()?.join(BASE_FILE), &base)?;
        let folder = root.join(&prefix);
        // The folder may contain no tracked files.
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The path of a folder relative to its repository.
    pub(crate) fn repository_prefix(
        &self,
        folder: &Path,
        stop: &watch::Receiver<bool>,
    ) -> Result<String, GitError> {
        let work = self.settling(stop);
        let git = self.within(folder, &work)?;
        git.text("find the repository", &["rev-parse", "--show-prefix"])
    }

    /// Commits all uncommitted changes, except those within submodules. Returns the number of files
    /// changed since the base commit.
    pub(crate) fn commit_changes(
        &self,
        root: &Path,
        stop: &watch::Receiver<bool>,
    ) -> Result<u64, GitError> {
        let work = self.settling(stop);
        let git = self.within(root, &work)?;
        let base = git.git_dir()?.join(BASE_FILE);
        let base = read_regular_file(&base, BASE_BYTES_MAX).map_err(std::io::Error::from)?;
        let base = String::from_utf8_lossy(&base);
        let mut warnings = Vec::new();
        // `git add` would run Git in each submodule, with the configuration there.
        for list in [
            &["diff-files", "-z", "--name-only", "--ignore-submodules=all"][..],
            &["ls-files", "-z", "--others", "--exclude-standard"],
        ] {
            let listed = git.run("list the changes", list, b"")?;
            let add = ["update-index", "-z", "--add", "--remove", "--stdin"];
            git.run("add all changes", &add, &listed.stdout)?;
            // Git skips folders that it cannot open, and still succeeds.
            warnings.extend(listed.stderr);
        }
        let head = git.text("find the newest commit", &["rev-parse", "--verify", "HEAD"])?;
        let tree = git.text("write the files", &["write-tree"])?;
        if tree != git.text("find the files", &["rev-parse", "--verify", "HEAD^{tree}"])? {
            let commit = ["commit-tree", "-p", &head, "-m", COMMIT_MESSAGE, &tree];
            let commit = git.text("commit the changes", &commit)?;
            let update = ["update-ref", "-m", COMMIT_MESSAGE, "HEAD", &commit, &head];
            git.text("update the branch", &update)?;
        }
        if !warnings.is_empty() {
            let (folder, message) = (root.to_owned(), shown_message(&warnings));
            return Err(GitError::Incomplete { folder, message });
        }
        let changed = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", base.trim(), "HEAD"];
        let changed = git.run("list the changes", &changed, b"")?.stdout;
        Ok(memchr::memchr_iter(0, &changed).count() as u64)
    }

    /// The Git directory that the worktrees of a repository share.
    pub(crate) fn common_dir(&self, root: &Path, work: &GitWork<'_>) -> Result<PathBuf, GitError> {
        let common = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        self.within(root, work)?.path("find the repository", &common)
    }

    /// Forgets a worktree whose files are removed, or at least its link to the repository.
    pub(crate) fn forget_worktree(
        &self,
        common: &Path,
        root: &Path,
        branch: Option<&str>,
        work: &GitWork<'_>,
    ) -> Result<(), GitError> {
        let git = self.within(common, work)?;
        let root_text = root.to_string_lossy();
        let remove = ["worktree", "remove", "--force", "--force", root_text.as_ref()];
        // Git would remove the rest of the files, however long that takes.
        let forget = if root.exists() { &["worktree", "prune"][..] } else { &remove };
        git.text("remove the worktree", forget)?;
        if let Some(branch) = branch {
            git.text("remove the branch", &["branch", "--quiet", "-D", branch])?;
        }
        Ok(())
    }

    /// Git in this folder, with all commands disabled that its configuration names.
    fn within<'a>(
        &'a self,
        folder: &'a Path,
        work: &'a GitWork<'a>,
    ) -> Result<GitFolder<'a>, GitError> {
        let action = "read the configuration";
        let trusted = GitFolder { git: self, folder, variables: self.environment.of_user(), work };
        let trusted = trusted.list(action, &GitEnvironment::LIST_TRUSTED_FOLDERS)?;
        let mut variables = self.environment.hardened(&trusted);
        let hardened = GitFolder { git: self, folder, variables: variables.clone(), work };
        let names = hardened.list(action, &GitEnvironment::LIST_COMMANDS)?;
        GitEnvironment::disable_commands(&mut variables, &names)
            .map_err(|message| GitError::Refused { action, folder: folder.to_owned(), message })?;
        Ok(GitFolder { git: self, folder, variables, work })
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
        let output = self.start(action, args, b"", self.git.limits.configuration)?;
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
        let output = self.start(action, args, input, self.git.limits.command)?;
        if output.status.success() { Ok(output) } else { Err(self.refused(action, &output)) }
    }

    fn start(
        &self,
        action: &'static str,
        args: &[&str],
        input: &[u8],
        limit: Duration,
    ) -> Result<BlockingRunOutput, GitError> {
        let program = ProcessCommand {
            path: self.git.executable.clone().ok_or(GitError::NotFound)?,
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: self.variables.clone(),
            folder: self.folder.to_owned(),
        };
        let is_stopped = || self.work.is_stopped();
        let timeout = limit.min(self.work.time_left());
        let limits = BlockingRunLimits { timeout, is_stopped: &is_stopped };
        self.git.launcher.run_to_end(&program, input, &limits).map_err(|error| {
            let folder = self.folder.to_owned();
            let error = match error {
                // The time that was left says less than the limit.
                BlockingRunError::TimedOut(_) => {
                    BlockingRunError::TimedOut(limit.min(self.work.limit))
                }
                error => error,
            };
            GitError::NotRun { action, folder, error }
        })
    }

    fn refused(&self, action: &'static str, output: &BlockingRunOutput) -> GitError {
        let message = shown_message(&output.stderr);
        GitError::Refused { action, folder: self.folder.to_owned(), message }
    }
}

/// The beginning of what Git wrote. It repeats paths, which have any length.
fn shown_message(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
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
        let mut git = GitCommand {
            executable: find_executable("git", Path::new("/"), &folders),
            launcher: ProcessLauncher::Direct,
            environment: GitEnvironment::new(&environment),
            limits: GitLimits { configuration: Duration::from_secs(1), ..GIT_LIMITS },
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
        let (stopper, stop) = watch::channel(false);
        let error = git.repository_prefix(folder.path(), &stop).unwrap_err().to_string();
        assert!(error.contains("did not exit within 1 s and was ended"), "{error}");
        git.limits.settling = Duration::ZERO;
        let error = git.repository_prefix(folder.path(), &stop).unwrap_err().to_string();
        assert!(error.contains("did not exit within 0 s and was ended"), "{error}");
        // A removal goes on for a moment after the stop.
        git.limits = GitLimits { removing_when_stopped: Duration::from_secs(1), ..GIT_LIMITS };
        stopper.send_replace(true);
        assert!(git.repository_prefix(folder.path(), &stop).unwrap_err().is_stop());
        let work = git.removing(Some(&stop));
        assert!(git.common_dir(folder.path(), &work).unwrap_err().is_stop());
        assert!(work.started_at.elapsed() >= Duration::from_secs(1));
    }
}
