//! One run of a process: start and supervision until its whole tree has ended.

pub(crate) mod deadlines;
pub(crate) mod files;
mod supervise;

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::CliAgent;
use polity_engine::driver::{RunOutcome, RunRequest};
use polity_files::{FileAccess, create_file};
use polity_masking::SecretMask;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::run::ProcessExit;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::supervise::wait_until_true;
use super::CliDriver;
use crate::cli::invocation::presets::{OutputMode, ResolvedAgent};
use crate::cli::invocation::{CliInvocation, StdinContent};
use crate::cli::outcome::EndCause;
use crate::cli::outcome::verdict;
use crate::cli::output::json_rpc::RpcResponseScanner;
use crate::cli::output::live_output::LiveOutput;
use crate::cli::output::output_file::{OutputBudget, OutputFile};
use crate::cli::output::output_reader::{OutputReader, StreamParser, StreamSummary};
use crate::cli::output::parser::{AnswerParser, Utf8Decoder};
use crate::cli::run::deadlines::{LastOutput, RunDeadlines};
use crate::cli::run::files::RunFiles;
#[cfg(target_os = "linux")]
use crate::process::cgroup;
#[cfg(target_os = "linux")]
use crate::process::run_marker::{self, kill_marked};
use crate::process::run_record::RunExit;
#[cfg(target_os = "linux")]
use crate::process::run_record::{ShimRecord, run_name};
use crate::process::shim_options::signal_of;
use crate::process::{
    PidsLimit, ProcessHandle, ProcessLauncher, ProcessPipes, ProcessTreeLimits, SupervisionOptions,
};

/// The pipe capacity. Output beyond it is lost if a program exits before it is read.
const PIPE_BYTES: usize = 1 << 20;

const BYTES_PER_MB: u64 = 1 << 20;

/// The mode of the private copy of a script: its owner may read and run it.
const SCRIPT_MODE: u32 = 0o500;

pub(crate) struct AgentInfo<'a> {
    pub(crate) name: &'a str,
    pub(crate) agent: &'a CliAgent,
    pub(crate) resolved: ResolvedAgent,
}

/// A run that is ready to start.
pub(crate) struct PreparedRun<'a> {
    pub(crate) info: AgentInfo<'a>,
    pub(crate) invocation: CliInvocation,
    pub(crate) mask: SecretMask,
    pub(crate) files: RunFiles,
    /// True if a shim writes the record.
    pub(crate) is_shimmed: bool,
}

/// A running process with its readers and deadlines.
struct SupervisedRun<'a> {
    prepared: PreparedRun<'a>,
    launcher: &'a ProcessLauncher,
    started_at: Instant,
    handle: ProcessHandle,
    deadlines: RunDeadlines,
    last_output: Arc<LastOutput>,
    live: LiveOutput,
    stdout: JoinHandle<StreamSummary>,
    stderr: JoinHandle<StreamSummary>,
    stop_readers: watch::Sender<bool>,
    /// Becomes true when the JSON-RPC response has arrived.
    responded: watch::Receiver<bool>,
    close_stdin: watch::Sender<bool>,
}

impl CliDriver {
    /// Starts a prepared run and supervises it.
    pub(crate) async fn supervise(
        &self,
        prepared: PreparedRun<'_>,
        request: &RunRequest<'_>,
    ) -> Result<RunOutcome, AttemptFailure> {
        let running = self.start(prepared, request)?;
        request.progress.started(running.handle.pid);
        Ok(running.supervise(request).await)
    }

    fn start<'a>(
        &'a self,
        mut prepared: PreparedRun<'a>,
        request: &RunRequest<'_>,
    ) -> Result<SupervisedRun<'a>, AttemptFailure> {
        let written = prepared.files.create_folder().and_then(|()| write_private_files(&prepared));
        written.map_err(|error| {
            let folder = prepared.files.private.display();
            system_error(&format!(
                "the files for the program cannot be written to {folder}: {error}"
            ))
        })?;
        let launcher = &self.options.launcher;
        let supervision = supervision_options(&prepared, launcher, request);
        let stdin = std::mem::replace(&mut prepared.invocation.stdin, StdinContent::Nothing);
        let pipe = match stdin {
            StdinContent::Nothing => Stdio::null(),
            StdinContent::Text(_) | StdinContent::Request(_) => Stdio::piped(),
        };
        let started_at = Instant::now();
        mark_run(&mut prepared);
        let spawned = launcher.spawn(&prepared.invocation.program, &supervision, pipe);
        let (handle, pipes) =
            spawned.map_err(|error| verdict::not_started(&prepared.info.resolved, &error))?;
        let limit = self.options.output_bytes;
        let agent_limit = prepared.info.agent.resource_limits.output_bytes;
        let budget = OutputBudget::new(agent_limit.map_or(limit, |own| own.min(limit)).get());
        Ok(start_io(prepared, launcher, (handle, pipes), (started_at, budget), stdin))
    }
}

/// Starts reading and writing in tasks of their own, so that no stream blocks another.
fn start_io<'a>(
    prepared: PreparedRun<'a>,
    launcher: &'a ProcessLauncher,
    (handle, pipes): (ProcessHandle, ProcessPipes),
    (started_at, budget): (Instant, OutputBudget),
    input: StdinContent,
) -> SupervisedRun<'a> {
    let last_output = Arc::new(LastOutput::new(started_at));
    let live = LiveOutput::default();
    let (stop_readers, is_stopped) = watch::channel(false);
    let (respond, responded) = watch::channel(false);
    let (close_stdin, closed) = watch::channel(false);
    let ProcessPipes { stdin, stdout, stderr } = pipes;
    enlarge_pipe(&stdout);
    enlarge_pipe(&stderr);
    if let Some(stdin) = stdin {
        tokio::spawn(write_input(stdin, input, closed));
    }
    let info = &prepared.info;
    let output_reader = |parser, path: &Path| OutputReader {
        stream: prepared.mask.stream(),
        file: OutputFile::new(path.to_path_buf(), budget.clone()),
        parser,
        live: live.clone(),
        last_output: Arc::clone(&last_output),
    };
    let from_stdout =
        output_reader(stdout_parser(&info.resolved, Some(respond)), &prepared.files.stdout);
    let from_stderr =
        output_reader(StreamParser::Show(Utf8Decoder::default()), &prepared.files.stderr);
    SupervisedRun {
        launcher,
        started_at,
        handle,
        deadlines: RunDeadlines::new(started_at, info.agent, &info.resolved.output),
        stdout: tokio::spawn(from_stdout.read_to_end(stdout, is_stopped.clone())),
        stderr: tokio::spawn(from_stderr.read_to_end(stderr, is_stopped)),
        last_output,
        live,
        stop_readers,
        responded,
        close_stdin,
        prepared,
    }
}

/// The parser for the stdout of a process.
pub(crate) fn stdout_parser(
    resolved: &ResolvedAgent,
    respond: Option<watch::Sender<bool>>,
) -> StreamParser {
    match resolved.output {
        OutputMode::Stdout => {
            let parser = AnswerParser::new(&resolved.parser).with_events(&resolved.event_rules);
            StreamParser::Answer(Box::new(parser))
        }
        OutputMode::JsonRpc => StreamParser::Response(RpcResponseScanner::default(), respond),
        OutputMode::File(_) => StreamParser::Show(Utf8Decoder::default()),
    }
}

fn supervision_options(
    prepared: &PreparedRun<'_>,
    launcher: &ProcessLauncher,
    request: &RunRequest<'_>,
) -> SupervisionOptions {
    let limits = &prepared.info.agent.resource_limits;
    let cgroup = run_cgroup(request);
    SupervisionOptions {
        stop_signal: signal_of(prepared.info.agent.stop_signal),
        grace: Duration::from_secs(prepared.info.agent.grace_seconds),
        limits: ProcessTreeLimits {
            memory_bytes: limits.memory_mb.map(|most| most.get().saturating_mul(BYTES_PER_MB)),
            cpu_seconds: limits.cpu_seconds.map(std::num::NonZeroU64::get),
            processes: limits.processes.map(std::num::NonZeroU32::get),
        },
        record: Some(prepared.files.record.clone()),
        slot: match launcher {
            ProcessLauncher::Shim(_) => request.slot.lock_file().map(Path::to_owned),
            ProcessLauncher::Direct => None,
        },
        pids_limit: limits
            .processes
            .and_then(|most| PidsLimit::for_processes(most, cgroup.as_deref())),
        cgroup,
        samples_usage: true,
        // A program may write while it ends, and Polity may be dead by then.
        holds_pipes: true,
    }
}

/// The control group of a run, if supported.
#[cfg(target_os = "linux")]
fn run_cgroup(request: &RunRequest<'_>) -> Option<PathBuf> {
    cgroup::for_run(&format!("{}-{}", request.execution_id, request.attempt))
}

#[cfg(not(target_os = "linux"))]
fn run_cgroup(_: &RunRequest<'_>) -> Option<PathBuf> {
    None
}

/// Adds the variable by which the processes of the run are found.
fn mark_run(prepared: &mut PreparedRun<'_>) {
    #[cfg(target_os = "linux")]
    {
        run_marker::mark(&mut prepared.invocation.program.env, run_name(&prepared.files.record));
    }
}

/// Kills processes that a killed shim left. A shim that exits normally has ended all of them.
async fn kill_orphans_of_killed_shim(prepared: &PreparedRun<'_>, request: &RunRequest<'_>) {
    #[cfg(target_os = "linux")]
    {
        let cleared = run_cgroup(request).map_or(Ok(()), |group| cgroup::clear(&group));
        let path = &prepared.files.record;
        let record = ShimRecord::open(path).ok().flatten();
        let has_ended = record.is_some_and(|record| record.ended().is_some());
        let killed = if has_ended || !prepared.is_shimmed {
            Ok(())
        } else {
            let run = run_name(path);
            let killed = tokio::task::spawn_blocking(move || kill_marked(&run));
            killed.await.map_err(io::Error::other).flatten()
        };
        if let Err(error) = cleared.and(killed) {
            tracing::warn!(path = %path.display(), %error, "cannot end the remaining processes of a run");
        }
    }
}

/// Writes the private files of a run.
fn write_private_files(prepared: &PreparedRun<'_>) -> io::Result<()> {
    let CliInvocation { files, script, output_file, .. } = &prepared.invocation;
    if files.is_empty() && script.is_none() && output_file.is_none() {
        return Ok(());
    }
    prepared.files.remove_private()?;
    DirBuilder::new().mode(0o700).create(&prepared.files.private)?;
    if let Some(file) = output_file {
        // A file left by an earlier run is not this run's answer.
        file.remove()?;
    }
    for (path, content) in files {
        create_file(path, FileAccess::Private)?.write_all(content.as_bytes())?;
    }
    if let Some((path, content)) = script {
        let mut file = create_file(path, FileAccess::Private)?;
        file.write_all(content.as_bytes())?;
        file.set_permissions(Permissions::from_mode(SCRIPT_MODE))?;
    }
    Ok(())
}

/// Enlarges a pipe. Failing is harmless: unprivileged users have a quota.
fn enlarge_pipe(pipe: &impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

/// Writes the input and closes stdin when allowed. The process need not read all of it.
async fn write_input(mut stdin: ChildStdin, input: StdinContent, mut close: watch::Receiver<bool>) {
    let (text, is_kept_open) = match input {
        StdinContent::Nothing => return,
        StdinContent::Text(text) => (text, false),
        StdinContent::Request(line) => (line, true),
    };
    if stdin.write_all(text.as_bytes()).await.is_ok() && is_kept_open {
        // Stdin also closes when the run is dropped.
        let _ = close.wait_for(|close| *close).await;
    }
}

/// A failure of Polity or the machine.
pub(crate) fn system_error(message: &str) -> AttemptFailure {
    verdict::failure(ErrorCategory::SystemError, message)
}

/// The exit of a run without a shim record.
pub(crate) fn exit_without_record(cause: EndCause, exit: ProcessExit) -> RunExit {
    match cause {
        EndCause::Ended | EndCause::Responded => RunExit::Exited(exit),
        EndCause::Stopped | EndCause::TimedOut(_) => RunExit::Stopped(exit),
    }
}
