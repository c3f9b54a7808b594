//! Starts child processes, waits for them and signals them.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use polity_shim::HandoverState;
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};

use super::run_record::ServiceRecord;
use super::stderr_tail::StderrTail;
use super::{ProcessCommand, ProcessLauncher, SUPERVISE_COMMAND, SupervisionOptions};

/// The time a child has to exit after its stdin is closed.
const STDIN_GRACE: Duration = Duration::from_secs(1);

/// The time that shim or child has to exit after SIGTERM. The shim's own grace period is shorter.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// A child process and the tail of its stderr. The process is ended when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ChildProcess {
    handle: ProcessHandle,
    stderr_tail: StderrTail,
}

/// A handle to a child process, which is ended when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct ProcessHandle {
    /// The started process: the shim, if there is one.
    pub(crate) pid: u32,
    signals: mpsc::UnboundedSender<Signal>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// This process's ends of the child's pipes.
#[derive(Debug)]
pub(crate) struct ProcessPipes {
    /// Present if requested.
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A child process that was just started, with its pipes.
#[derive(Debug)]
pub struct StartedProcess {
    /// The child.
    pub child: ChildProcess,
    /// Its stdin.
    pub stdin: ChildStdin,
    /// Its stdout.
    pub stdout: ChildStdout,
}

impl ProcessLauncher {
    /// Starts a service: a command that belongs to no execution. Its record in the data folder lets
    /// the next process end what this one and the shim leave if both are killed. Must be called
    /// within a Tokio runtime.
    pub fn start_service(
        &self,
        program: &ProcessCommand,
        data: &Path,
    ) -> io::Result<StartedProcess> {
        let service = match self {
            Self::Shim(_) => ServiceRecord::create(data)?,
            // Nothing would lock or end it.
            Self::Direct => None,
        };
        let (program, options) = match &service {
            Some(service) => recorded_service(program, service),
            None => (program.clone(), SupervisionOptions::default()),
        };
        let (handle, pipes) = self.spawn_recorded(&program, &options, Stdio::piped(), service)?;
        let ProcessPipes { stdin, stdout, stderr } = pipes;
        let stdin = stdin.ok_or_else(pipe_missing)?;
        Ok(StartedProcess {
            child: ChildProcess { handle, stderr_tail: StderrTail::read(stderr) },
            stdin,
            stdout,
        })
    }

    /// Builds the command that starts a program under supervision, with pipes for its output.
    ///
    /// Nothing here runs between fork and exec, so that the kernel need not copy page tables.
    #[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
    pub(super) fn command(
        &self,
        program: &ProcessCommand,
        supervision: &SupervisionOptions,
        stdin: Stdio,
    ) -> Command {
        let mut command = match self {
            Self::Shim(shim) => {
                let mut command = shim_command(shim);
                let parent = std::process::id().to_string();
                command.args([SUPERVISE_COMMAND, HandoverState::NEW, &parent]);
                command.args(supervision.to_args()).arg(&program.path);
                command
            }
            Self::Direct => Command::new(&program.path),
        };
        command.args(&program.args).current_dir(&program.folder);
        command.env_clear().envs(program.env.iter().map(|(name, value)| (name, value)));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // In a group of its own: Ctrl-C in the terminal reaches only Polity, which ends its
        // children.
        command.process_group(0);
        command
    }

    /// Starts a command under supervision. Must be called within a Tokio runtime.
    pub(crate) fn spawn(
        &self,
        program: &ProcessCommand,
        supervision: &SupervisionOptions,
        stdin: Stdio,
    ) -> io::Result<(ProcessHandle, ProcessPipes)> {
        self.spawn_recorded(program, supervision, stdin, None)
    }

    fn spawn_recorded(
        &self,
        program: &ProcessCommand,
        supervision: &SupervisionOptions,
        stdin: Stdio,
        service: Option<ServiceRecord>,
    ) -> io::Result<(ProcessHandle, ProcessPipes)> {
        let command = self.command(program, supervision, stdin);
        let mut child = match tokio::process::Command::from(command).spawn() {
            Ok(child) => child,
            Err(error) => {
                // No shim will lock the record.
                service.as_ref().map_or(Ok(()), ServiceRecord::finish)?;
                return Err(error);
            }
        };
        let pipes = ProcessPipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().ok_or_else(pipe_missing)?,
            stderr: child.stderr.take().ok_or_else(pipe_missing)?,
        };
        let id = child.id().ok_or_else(pipe_missing)?;
        let pid = Pid::from_raw(id.cast_signed()).ok_or_else(pipe_missing)?;
        let (signals, received) = mpsc::unbounded_channel();
        let (exit_sender, ended) = watch::channel(None);
        let is_shimmed = matches!(self, Self::Shim(_));
        let reaper = ProcessReaper { child, pid, is_shimmed, service, has_ended: false };
        tokio::spawn(reaper.run(received, exit_sender));
        Ok((ProcessHandle { pid: id, signals, ended }, pipes))
    }
}

/// The command of the stub if it can be used, else of the full shim.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn shim_command(full_shim: &Path) -> Command {
    #[cfg(target_os = "linux")]
    if let Some(stub) = super::shim_stub::stub_path() {
        let mut command = Command::new(stub);
        command.arg(full_shim);
        return command;
    }
    Command::new(full_shim)
}

/// The command and options of a service with a record. Its usage is not sampled, so that it needs
/// only the stub.
fn recorded_service(
    program: &ProcessCommand,
    service: &ServiceRecord,
) -> (ProcessCommand, SupervisionOptions) {
    let mut program = program.clone();
    let mut options = SupervisionOptions {
        record: Some(service.path().to_owned()),
        samples_usage: false,
        ..SupervisionOptions::default()
    };
    #[cfg(target_os = "linux")]
    {
        super::run_marker::mark(&mut program.env, service.run());
        options.cgroup = super::cgroup::for_run(&service.run());
    }
    (program, options)
}

fn pipe_missing() -> io::Error {
    io::Error::other("a pipe is missing")
}

impl ChildProcess {
    /// Waits for the exit.
    pub async fn wait(&self) -> Option<ExitStatus> {
        self.handle.wait().await
    }

    /// The tail of the child's stderr.
    pub fn stderr_tail(&self) -> &StderrTail {
        &self.stderr_tail
    }

    /// Ends the child after its stdin was closed: waits, then sends SIGTERM, then SIGKILL.
    pub async fn end(&self) {
        if tokio::time::timeout(STDIN_GRACE, self.wait()).await.is_err() {
            self.stop().await;
        }
    }

    /// Ends the child at once: SIGTERM, then SIGKILL.
    pub async fn stop(&self) {
        self.handle.send_signal(Signal::TERM);
        if tokio::time::timeout(TERM_GRACE, self.wait()).await.is_ok() {
            return;
        }
        self.handle.send_signal(Signal::KILL);
        self.wait().await;
    }
}

impl ProcessHandle {
    /// Waits for the exit of the started process.
    pub(crate) async fn wait(&self) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        // The channel closes without a status only if the runtime is being torn down.
        ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Sends a signal to the started process, unless it has exited.
    pub(crate) fn send_signal(&self, signal: Signal) {
        // The receiver is gone once the process has exited.
        let _ = self.signals.send(signal);
    }
}

/// The owner of the child. Only it reaps the child, so the pid stays valid while signals are sent.
struct ProcessReaper {
    child: tokio::process::Child,
    pid: Pid,
    is_shimmed: bool,
    service: Option<ServiceRecord>,
    has_ended: bool,
}

impl ProcessReaper {
    async fn run(
        mut self,
        mut signals: mpsc::UnboundedReceiver<Signal>,
        exit_sender: watch::Sender<Option<ExitStatus>>,
    ) {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status.ok(),
                signal = signals.recv() => {
                    let Some(signal) = signal else {
                        self.signal(self.last_signal());
                        break self.child.wait().await.ok();
                    };
                    self.signal(signal);
                }
            }
        };
        self.has_ended = true;
        if let Some(service) = self.service.take() {
            finish_service(service).await;
        }
        if !self.is_shimmed {
            // The shim has already killed its tree.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        exit_sender.send_replace(status);
    }

    /// The signal when all handles are dropped. The shim gets SIGTERM, so that it ends the tree.
    fn last_signal(&self) -> Signal {
        if self.is_shimmed { Signal::TERM } else { Signal::KILL }
    }

    fn signal(&self, signal: Signal) {
        // An unreachable process has just exited.
        let _ = if self.is_shimmed {
            rustix::process::kill_process(self.pid, signal)
        } else {
            rustix::process::kill_process_group(self.pid, signal)
        };
    }
}

/// The last resort when the runtime is torn down. The next process removes the record of a service.
impl Drop for ProcessReaper {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(self.last_signal());
        }
    }
}

/// Removes the record of a service whose shim has exited, after the end of what a killed shim left.
async fn finish_service(service: ServiceRecord) {
    let path = service.path().to_owned();
    let finished = tokio::task::spawn_blocking(move || service.finish());
    if let Err(error) = finished.await.map_err(io::Error::other).flatten() {
        // The next process tries again.
        tracing::warn!(path = %path.display(), %error, "cannot end the remaining processes of a service");
    }
}
