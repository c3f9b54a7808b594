//! One run of a program, from its start until nothing of it is left.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use polity_definition::CliAgent;
use polity_engine::driver::{RunOutcome, RunProgress, RunRequest};
use polity_model::failure::{ErrorCategory, Failure};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::clock::{Heard, Late, Patience};
use super::drain::{Drain, Drained, Reader};
use super::invocation::{Invocation, Stdin};
use super::kept::{KeptFile, Room};
use super::live::Live;
use super::outcome::{self, Cause, Finished, Streams};
use super::parser::{Characters, Parser};
use super::paths::{Paths, ignore_missing};
use super::presets::{Output, Settled};
use super::rpc::Responses;
use super::{CliPrograms, places, verdict};
use crate::masking::Mask;
#[cfg(target_os = "linux")]
use crate::process::cgroup;
use crate::process::record::{How, Record};
use crate::process::supervision::signal_of;
use crate::process::{Ceiling, Handle, Launcher, Pipes, Supervision, TreeLimits};

/// How much a pipe holds. Some programs end before what they wrote is read, and lose what does not
/// fit.
const PIPE_BYTES: usize = 1 << 20;

/// How often what is used is told.
const USAGE_PAUSE: Duration = Duration::from_millis(500);

/// How long the pipes may stay open when nothing of the program is left. Only someone to whom they
/// were handed could hold them then.
const PIPES_WAIT: Duration = Duration::from_secs(2);

const BYTES_PER_MB: u64 = 1 << 20;

/// Whose run it is.
pub(super) struct About<'a> {
    pub(super) name: &'a str,
    pub(super) agent: &'a CliAgent,
    pub(super) settled: Settled,
}

/// A run that is ready to be started.
pub(super) struct Prepared<'a> {
    pub(super) about: About<'a>,
    pub(super) invocation: Invocation,
    pub(super) mask: Mask,
    pub(super) paths: Paths,
    /// Whether there is a shim, which writes down how it went.
    pub(super) is_shimmed: bool,
}

/// A run that goes on.
struct Running<'a> {
    prepared: Prepared<'a>,
    launcher: &'a Launcher,
    begun: Instant,
    handle: Handle,
    patience: Patience,
    heard: Arc<Heard>,
    live: Live,
    stdout: JoinHandle<Drained>,
    stderr: JoinHandle<Drained>,
    /// Tells those who read that nothing more is to be expected.
    over: watch::Sender<bool>,
    /// Becomes true when the program has responded, if it was asked.
    responded: watch::Receiver<bool>,
    /// Lets go of the program's stdin.
    close_stdin: watch::Sender<bool>,
}

impl CliPrograms {
    /// Starts what is prepared, and sees it through.
    pub(super) async fn see_through(
        &self,
        prepared: Prepared<'_>,
        request: &RunRequest<'_>,
    ) -> Result<RunOutcome, Failure> {
        let running = self.start(prepared, request)?;
        request.progress.started(running.handle.pid);
        Ok(running.see_through(request).await)
    }

    fn start<'a>(
        &'a self,
        mut prepared: Prepared<'a>,
        request: &RunRequest<'_>,
    ) -> Result<Running<'a>, Failure> {
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
        let stdin = std::mem::replace(&mut prepared.invocation.stdin, Stdin::Nothing);
        let pipe = match stdin {
            Stdin::Nothing => Stdio::null(),
            Stdin::Text(_) | Stdin::Request(_) => Stdio::piped(),
        };
        let begun = Instant::now();
        let spawned = launcher.spawn(&prepared.invocation.program, &supervision, pipe);
        let (handle, pipes) =
            spawned.map_err(|error| verdict::not_started(&prepared.about.settled, &error))?;
        let most = self.options.output_bytes;
        let own_most = prepared.about.agent.resource_limits.output_bytes;
        let room = Room::new(own_most.map_or(most, |own| own.min(most)).get());
        Ok(running(prepared, launcher, (handle, pipes), (begun, room), stdin))
    }
}

/// Begins to read and write, each by itself, so that nothing waits for anything else.
fn running<'a>(
    prepared: Prepared<'a>,
    launcher: &'a Launcher,
    (handle, pipes): (Handle, Pipes),
    (begun, room): (Instant, Room),
    input: Stdin,
) -> Running<'a> {
    let heard = Arc::new(Heard::new(begun));
    let live = Live::default();
    let (over, is_over) = watch::channel(false);
    let (respond, responded) = watch::channel(false);
    let (close_stdin, closed) = watch::channel(false);
    let Pipes { stdin, stdout, stderr } = pipes;
    enlarge(&stdout);
    enlarge(&stderr);
    if let Some(stdin) = stdin {
        tokio::spawn(write_input(stdin, input, closed));
    }
    let drain = |reader, path: &std::path::Path| Drain {
        stream: prepared.mask.stream(),
        kept: KeptFile::new(path.to_path_buf(), room.clone()),
        reader,
        live: live.clone(),
        heard: Arc::clone(&heard),
    };
    let from_stdout = drain(reader(&prepared.about.settled, Some(respond)), &prepared.paths.stdout);
    let from_stderr = drain(Reader::Show(Characters::default()), &prepared.paths.stderr);
    Running {
        launcher,
        begun,
        handle,
        patience: Patience::new(begun, prepared.about.agent, &prepared.about.settled.output),
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

/// Who looks through what a program writes to stdout.
pub(super) fn reader(settled: &Settled, respond: Option<watch::Sender<bool>>) -> Reader {
    match settled.output {
        Output::Stdout => Reader::Answer(Box::new(Parser::new(&settled.parser))),
        Output::JsonRpc => Reader::Response(Responses::default(), respond),
        Output::File(_) => Reader::Show(Characters::default()),
    }
}

fn supervision(
    prepared: &Prepared<'_>,
    launcher: &Launcher,
    request: &RunRequest<'_>,
) -> io::Result<Supervision> {
    let limits = &prepared.about.agent.resource_limits;
    let cgroup = group_of(request);
    Ok(Supervision {
        stop_signal: signal_of(prepared.about.agent.stop_signal),
        grace: Duration::from_secs(prepared.about.agent.grace_seconds),
        limits: TreeLimits {
            memory_bytes: limits.memory_mb.map(|most| most.get().saturating_mul(BYTES_PER_MB)),
            cpu_seconds: limits.cpu_seconds.map(std::num::NonZeroU64::get),
            processes: limits.processes.map(std::num::NonZeroU32::get),
        },
        record: Some(prepared.paths.record.clone()),
        place: match launcher {
            Launcher::Shim(_) => Some(places::path_of(request.place)?),
            Launcher::Direct => None,
        },
        ceiling: limits.processes.and_then(|most| Ceiling::above(most, cgroup.as_deref())),
        cgroup,
    })
}

/// The control group of a run, where there are such groups.
#[cfg(target_os = "linux")]
fn group_of(request: &RunRequest<'_>) -> Option<PathBuf> {
    cgroup::of_run(&format!("{}-{}", request.execution_id, request.attempt))
}

#[cfg(not(target_os = "linux"))]
fn group_of(_: &RunRequest<'_>) -> Option<PathBuf> {
    None
}

/// A shim that ended in order has removed the group.
fn end_whom_a_killed_shim_leaves(request: &RunRequest<'_>) {
    #[cfg(target_os = "linux")]
    if let Some(group) = group_of(request)
        && let Err(error) = cgroup::clear(&group)
    {
        tracing::warn!(path = %group.display(), %error, "what is left of a run cannot be ended");
    }
}

/// Writes the files that only the program is to see.
fn write_private(prepared: &Prepared<'_>) -> io::Result<()> {
    let Invocation { files, output_file, .. } = &prepared.invocation;
    if files.is_empty() && output_file.is_none() {
        return Ok(());
    }
    prepared.paths.remove_private()?;
    DirBuilder::new().mode(0o700).create(&prepared.paths.private)?;
    if let Some(path) = output_file {
        // What an earlier run left there is no answer of this one.
        ignore_missing(fs::remove_file(path))?;
    }
    files.iter().try_for_each(|(path, content)| fs::write(path, content))
}

/// A pipe that cannot be made larger is still one; there is a quota for those who are not root.
fn enlarge(pipe: &impl AsFd) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

/// Writes the input, and closes stdin when it may be closed. A program need not read all of it.
async fn write_input(mut stdin: ChildStdin, input: Stdin, mut closed: watch::Receiver<bool>) {
    let (text, is_kept_open) = match input {
        Stdin::Nothing => return,
        Stdin::Text(text) => (text, false),
        Stdin::Request(line) => (line, true),
    };
    if stdin.write_all(text.as_bytes()).await.is_ok() && is_kept_open {
        // Where no one is left to say so, it is closed too.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

impl Running<'_> {
    async fn see_through(mut self, request: &RunRequest<'_>) -> RunOutcome {
        let progress = request.progress;
        let cause = self.wait_for_cause(request.stop.clone(), progress).await;
        match cause {
            Cause::Ended => {}
            Cause::Stopped | Cause::Late(_) => self.end(progress).await,
            Cause::Responded => {
                self.close_stdin.send_replace(true);
                let grace = Duration::from_secs(self.prepared.about.agent.grace_seconds);
                if !self.is_over_within(Some(grace), progress).await {
                    self.end(progress).await;
                }
            }
        }
        let Self { prepared, begun, handle, live, stdout, stderr, over, .. } = self;
        let status = handle.wait().await;
        end_whom_a_killed_shim_leaves(request);
        let deadline = Instant::now() + PIPES_WAIT;
        let (stdout, stderr) =
            tokio::join!(drained(stdout, deadline, &over), drained(stderr, deadline, &over));
        let rest = live.take();
        if !rest.is_empty() {
            progress.output(&rest);
        }
        let output = stdout.zip(stderr).map(|(stdout, stderr)| Streams { stdout, stderr });
        let finished =
            Finished { cause, process_id: handle.pid, status, duration: begun.elapsed(), output };
        let outcome = outcome::of(&prepared, finished);
        if let Err(error) = prepared.paths.remove_private() {
            tracing::warn!(path = %prepared.paths.private.display(), %error, "files are left");
        }
        outcome
    }

    /// Waits until there is a reason to end the run, and tells meanwhile how it goes.
    async fn wait_for_cause(
        &mut self,
        mut stop: watch::Receiver<bool>,
        progress: &dyn RunProgress,
    ) -> Cause {
        let mut record = None;
        let mut looks = tokio::time::interval_at(Instant::now() + USAGE_PAUSE, USAGE_PAUSE);
        loop {
            let (deadline, late) = self.patience.next(&self.heard);
            tokio::select! {
                _ = self.handle.wait() => return Cause::Ended,
                () = becomes_true(&mut stop) => return Cause::Stopped,
                () = becomes_true(&mut self.responded) => return Cause::Responded,
                () = tokio::time::sleep_until(deadline) => {
                    // It may have been heard in the meantime.
                    if self.patience.next(&self.heard).0 <= Instant::now() {
                        return Cause::Late(late);
                    }
                }
                () = self.live.news() => progress.output(&self.live.take()),
                _ = looks.tick() => {
                    if record.is_none() {
                        record = Record::open(&self.prepared.paths.record).ok().flatten();
                    }
                    if let Some(usage) = record.as_ref().and_then(Record::usage) {
                        progress.usage(usage);
                    }
                }
            }
        }
    }

    /// Ends the program and all that it started.
    async fn end(&self, progress: &dyn RunProgress) {
        let agent = self.prepared.about.agent;
        match self.launcher {
            // The shim gives the grace, and is gone when nothing is left.
            Launcher::Shim(_) => self.handle.order(Signal::TERM),
            Launcher::Direct => {
                self.handle.order(signal_of(agent.stop_signal));
                let grace = Duration::from_secs(agent.grace_seconds);
                if self.is_over_within(Some(grace), progress).await {
                    return;
                }
                self.handle.order(Signal::KILL);
            }
        }
        self.is_over_within(None, progress).await;
    }

    /// Waits for the end, and shows meanwhile what comes.
    async fn is_over_within(&self, limit: Option<Duration>, progress: &dyn RunProgress) -> bool {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let too_late = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(too_late);
        loop {
            tokio::select! {
                _ = self.handle.wait() => return true,
                () = self.live.news() => progress.output(&self.live.take()),
                () = &mut too_late => return false,
            }
        }
    }
}

/// What came of a stream, which ends when nothing of the program is left. If someone else holds it
/// open, what has come by then must do.
async fn drained(
    mut task: JoinHandle<Drained>,
    deadline: Instant,
    over: &watch::Sender<bool>,
) -> Option<Drained> {
    if let Ok(drained) = tokio::time::timeout_at(deadline, &mut task).await {
        return drained.ok();
    }
    over.send_replace(true);
    task.await.ok()
}

/// Waits until it becomes true; for ever, if no one is left who could say so.
async fn becomes_true(told: &mut watch::Receiver<bool>) {
    if told.wait_for(|told| *told).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Something of Polity or the machine is wrong.
pub(super) fn system_error(message: &str) -> Failure {
    verdict::failure(ErrorCategory::SystemError, message)
}

/// How a run ended that no shim has written down.
pub(super) fn how_without_record(cause: Cause, exit: polity_model::run::Exit) -> How {
    match cause {
        Cause::Ended | Cause::Responded => How::ByItself(exit),
        Cause::Stopped | Cause::Late(Late::Total(_) | Late::Start(_) | Late::Idle(_)) => {
            How::Told(exit)
        }
    }
}
