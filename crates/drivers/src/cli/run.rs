//! One run of a process: start and supervision until its whole tree has ended.

pub(crate) mod deadlines;
pub(crate) mod files;
mod supervise;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::CliAgent;
use polity_engine::driver::{RunOutcome, RunRequest};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

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
use crate::cli::run::deadlines::{LastOutput, MissedDeadline, RunDeadlines};
use crate::cli::run::files::{RunFiles, ignore_missing};
use crate::cli::slots;
use crate::masking::SecretMask;
#[cfg(target_os = "linux")]
use crate::process::cgroup;
use crate::process::run_record::RunExit;
use crate::process::shim_options::signal_of;
use crate::process::{
    PidsLimit, ProcessHandle, ProcessLauncher, ProcessPipes, ProcessTreeLimits, SupervisionOptions,
};

/// The capacity of a pipe. Some programs exit before their output is read, and lose what exceeds
/// it.
const PIPE_BYTES: usize = 1 << 20;

const BYTES_PER_MB: u64 = 1 << 20;

/// The agent of a run.
pub(crate) struct AgentInfo<'a> {
    pub(crate) name: &'a str,
    pub(crate) agent: &'a CliAgent,
    pub(crate) settled: ResolvedAgent,
}

/// A run that is ready to start.
pub(crate) struct PreparedRun<'a> {
    pub(crate) about: AgentInfo<'a>,
    pub(crate) invocation: CliInvocation,
    pub(crate) mask: SecretMask,
    pub(crate) paths: RunFiles,
    /// True if a shim writes the record.
    pub(crate) is_shimmed: bool,
}

/// A running process with its readers and deadlines.
struct SupervisedRun<'a> {
    prepared: PreparedRun<'a>,
    launcher: &'a ProcessLauncher,
    begun: Instant,
    handle: ProcessHandle,
    patience: RunDeadlines,
    heard: Arc<LastOutput>,
    live: LiveOutput,
    stdout: JoinHandle<StreamSummary>,
    stderr: JoinHandle<StreamSummary>,
    /// Tells the readers to stop.
    over: watch::Sender<bool>,
    /// Becomes true when the JSON-RPC response has arrived.
    responded: watch::Receiver<bool>,
    /// Closes the stdin of the process.
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
        prepared.paths.make_folder().and_then(|()| write_private(&prepared)).map_err(|error| {
            let folder = prepared.paths.private.display();
            system_error(&format!(
                "the files for the program cannot be written to {folder}: {error}"
            ))
        })?;
        let launcher = &self.options.launcher;
        let supervision = supervision(&prepared, launcher, request).map_err(|error| {
            system_error(&format!("the place of the run is not known: {error}"))
        })?;
        let stdin = std::mem::replace(&mut prepared.invocation.stdin, StdinContent::Nothing);
        let pipe = match stdin {
            StdinContent::Nothing => Stdio::null(),
            StdinContent::Text(_) | StdinContent::Request(_) => Stdio::piped(),
        };
        let begun = Instant::now();
        let spawned = launcher.spawn(&prepared.invocation.program, &supervision, pipe);
        let (handle, pipes) =
            spawned.map_err(|error| verdict::not_started(&prepared.about.settled, &error))?;
        let most = self.options.output_bytes;
        let own_most = prepared.about.agent.resource_limits.output_bytes;
        let room = OutputBudget::new(own_most.map_or(most, |own| own.min(most)).get());
        Ok(running(prepared, launcher, (handle, pipes), (begun, room), stdin))
    }
}

/// Starts reading and writing in tasks of their own, so that no stream blocks another.
fn running<'a>(
    prepared: PreparedRun<'a>,
    launcher: &'a ProcessLauncher,
    (handle, pipes): (ProcessHandle, ProcessPipes),
    (begun, room): (Instant, OutputBudget),
    input: StdinContent,
) -> SupervisedRun<'a> {
    let heard = Arc::new(LastOutput::new(begun));
    let live = LiveOutput::default();
    let (over, is_over) = watch::channel(false);
    let (respond, responded) = watch::channel(false);
    let (close_stdin, closed) = watch::channel(false);
    let ProcessPipes { stdin, stdout, stderr } = pipes;
    enlarge(&stdout);
    enlarge(&stderr);
    if let Some(stdin) = stdin {
        tokio::spawn(write_input(stdin, input, closed));
    }
    let drain = |reader, path: &std::path::Path| OutputReader {
        stream: prepared.mask.stream(),
        kept: OutputFile::new(path.to_path_buf(), room.clone()),
        reader,
        live: live.clone(),
        heard: Arc::clone(&heard),
    };
    let from_stdout = drain(reader(&prepared.about.settled, Some(respond)), &prepared.paths.stdout);
    let from_stderr = drain(StreamParser::Show(Utf8Decoder::default()), &prepared.paths.stderr);
    SupervisedRun {
        launcher,
        begun,
        handle,
        patience: RunDeadlines::new(begun, prepared.about.agent, &prepared.about.settled.output),
        stdout: tokio::spawn(from_stdout.drain(stdout, is_over.clone())),
        stderr: tokio::spawn(from_stderr.drain(stderr, is_over)),
        heard,
        live,
        over,
        responded,
        close_stdin,
        prepared,
    }
}

/// The parser for the stdout of a process.
pub(crate) fn reader(
    settled: &ResolvedAgent,
    respond: Option<watch::Sender<bool>>,
) -> StreamParser {
    match settled.output {
        OutputMode::Stdout => StreamParser::Answer(Box::new(AnswerParser::new(&settled.parser))),
        OutputMode::JsonRpc => StreamParser::Response(RpcResponseScanner::default(), respond),
        OutputMode::File(_) => StreamParser::Show(Utf8Decoder::default()),
    }
}

fn supervision(
    prepared: &PreparedRun<'_>,
    launcher: &ProcessLauncher,
    request: &RunRequest<'_>,
) -> io::Result<SupervisionOptions> {
    let limits = &prepared.about.agent.resource_limits;
    let cgroup = group_of(request);
    Ok(SupervisionOptions {
        stop_signal: signal_of(prepared.about.agent.stop_signal),
        grace: Duration::from_secs(prepared.about.agent.grace_seconds),
        limits: ProcessTreeLimits {
            memory_bytes: limits.memory_mb.map(|most| most.get().saturating_mul(BYTES_PER_MB)),
            cpu_seconds: limits.cpu_seconds.map(std::num::NonZeroU64::get),
            processes: limits.processes.map(std::num::NonZeroU32::get),
        },
        record: Some(prepared.paths.record.clone()),
        place: match launcher {
            ProcessLauncher::Shim(_) => Some(slots::path_of(request.place)?),
            ProcessLauncher::Direct => None,
        },
        ceiling: limits.processes.and_then(|most| PidsLimit::above(most, cgroup.as_deref())),
        cgroup,
    })
}

/// The control group of a run, if supported.
#[cfg(target_os = "linux")]
fn group_of(request: &RunRequest<'_>) -> Option<PathBuf> {
    cgroup::of_run(&format!("{}-{}", request.execution_id, request.attempt))
}

#[cfg(not(target_os = "linux"))]
fn group_of(_: &RunRequest<'_>) -> Option<PathBuf> {
    None
}

/// Kills processes that a killed shim left. A shim that exits normally has removed the group.
fn end_whom_a_killed_shim_leaves(request: &RunRequest<'_>) {
    #[cfg(target_os = "linux")]
    if let Some(group) = group_of(request)
        && let Err(error) = cgroup::clear(&group)
    {
        tracing::warn!(path = %group.display(), %error, "what is left of a run cannot be ended");
    }
}

/// Writes the private files of a run.
fn write_private(prepared: &PreparedRun<'_>) -> io::Result<()> {
    let CliInvocation { files, output_file, .. } = &prepared.invocation;
    if files.is_empty() && output_file.is_none() {
        return Ok(());
    }
    prepared.paths.remove_private()?;
    DirBuilder::new().mode(0o700).create(&prepared.paths.private)?;
    if let Some(path) = output_file {
        // A file left by an earlier run is not this run's answer.
        ignore_missing(fs::remove_file(path))?;
    }
    files.iter().try_for_each(|(path, content)| fs::write(path, content))
}

/// Enlarges a pipe. Failing is harmless: unprivileged users have a quota.
fn enlarge(pipe: &impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

/// Writes the input and closes stdin when allowed. The process need not read all of it.
async fn write_input(
    mut stdin: ChildStdin,
    input: StdinContent,
    mut closed: watch::Receiver<bool>,
) {
    let (text, is_kept_open) = match input {
        StdinContent::Nothing => return,
        StdinContent::Text(text) => (text, false),
        StdinContent::Request(line) => (line, true),
    };
    if stdin.write_all(text.as_bytes()).await.is_ok() && is_kept_open {
        // Stdin also closes when the run is dropped.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

/// A failure of Polity or the machine.
pub(crate) fn system_error(message: &str) -> AttemptFailure {
    verdict::failure(ErrorCategory::SystemError, message)
}

/// The exit of a run without a shim record.
pub(crate) fn how_without_record(cause: EndCause, exit: polity_model::run::ProcessExit) -> RunExit {
    match cause {
        EndCause::Ended | EndCause::Responded => RunExit::Exited(exit),
        EndCause::Stopped
        | EndCause::TimedOut(
            MissedDeadline::Total(_) | MissedDeadline::Start(_) | MissedDeadline::Idle(_),
        ) => RunExit::Stopped(exit),
    }
}
