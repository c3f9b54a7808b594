//! A program that was started, seen from the one who started it.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use polity_shim::State;
use rustix::process::{Pid, Signal};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, watch};

use super::words::LastWords;
use super::{Launcher, Program, SUPERVISE, Supervision};

/// How long a program may take to end by itself once its stdin is closed.
const STDIN_GRACE: Duration = Duration::from_secs(1);

/// How long the shim, or the program itself, may take to end after SIGTERM. The shim first gives
/// the program a grace of its own, which is shorter.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// A program that was started, with what it says on stderr. When the last clone is gone, the
/// program is ended.
#[derive(Debug, Clone)]
pub struct Child {
    handle: Handle,
    words: LastWords,
}

/// A hold on a program that was started. When the last clone is gone, the program is ended.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    /// The process that was started: the shim, if there is one.
    pub(crate) pid: u32,
    orders: mpsc::UnboundedSender<Signal>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

/// Our ends of a program's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// What is written here, it reads; there if it was asked for.
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: ChildStdout,
    pub(crate) stderr: ChildStderr,
}

/// A program that was just started, with its ends of the pipes.
#[derive(Debug)]
pub struct Started {
    /// The program.
    pub child: Child,
    /// What is written here, it reads.
    pub stdin: ChildStdin,
    /// What it writes, is read here.
    pub stdout: ChildStdout,
}

impl Launcher {
    /// Starts a program. Must be called within a Tokio runtime.
    pub fn start(&self, program: &Program) -> io::Result<Started> {
        let (handle, pipes) = self.spawn(program, &Supervision::default(), Stdio::piped())?;
        let Pipes { stdin, stdout, stderr } = pipes;
        let stdin = stdin.ok_or_else(pipe_missing)?;
        Ok(Started { child: Child { handle, words: LastWords::of(stderr) }, stdin, stdout })
    }

    /// Starts a program that is supervised so. Must be called within a Tokio runtime.
    ///
    /// Nothing here runs between fork and exec, so that the system need not copy what this process
    /// has of memory.
    #[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
    pub(crate) fn spawn(
        &self,
        program: &Program,
        supervision: &Supervision,
        stdin: Stdio,
    ) -> io::Result<(Handle, Pipes)> {
        let mut command = match self {
            Self::Shim(shim) => {
                let mut command = shim_command(shim);
                let parent = std::process::id().to_string();
                command.args([SUPERVISE, State::NEW, &parent]);
                command.args(supervision.to_args()).arg(&program.path);
                command
            }
            Self::Direct => Command::new(&program.path),
        };
        command.args(&program.args).current_dir(&program.folder);
        command.env_clear().envs(program.env.iter().map(|(name, value)| (name, value)));
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: a Ctrl-C in the terminal is for Polity, which then ends its programs
        // in order.
        command.process_group(0);
        let mut child = command.spawn()?;
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().ok_or_else(pipe_missing)?,
            stderr: child.stderr.take().ok_or_else(pipe_missing)?,
        };
        let id = child.id().ok_or_else(pipe_missing)?;
        let pid = Pid::from_raw(id.cast_signed()).ok_or_else(pipe_missing)?;
        let (orders, received) = mpsc::unbounded_channel();
        let (tell, ended) = watch::channel(None);
        let shimmed = match self {
            Self::Shim(_) => true,
            Self::Direct => false,
        };
        tokio::spawn(Kept { child, pid, shimmed, ended: false }.keep(received, tell));
        Ok((Handle { pid: id, orders, ended }, pipes))
    }
}

/// The small shim, which becomes the whole one where it must; or that one at once, if there is no
/// other.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn shim_command(whole: &Path) -> Command {
    #[cfg(target_os = "linux")]
    if let Some(small) = super::small::path() {
        let mut command = Command::new(small);
        command.arg(whole);
        return command;
    }
    Command::new(whole)
}

fn pipe_missing() -> io::Error {
    io::Error::other("a pipe is missing")
}

impl Child {
    /// Waits until the program has ended.
    pub async fn wait(&self) -> Option<ExitStatus> {
        self.handle.wait().await
    }

    /// What the program last wrote to stderr.
    pub fn last_words(&self) -> &LastWords {
        &self.words
    }

    /// Ends the program, whose stdin is closed: waits a little, then asks, then kills.
    pub async fn end(&self) {
        if tokio::time::timeout(STDIN_GRACE, self.wait()).await.is_err() {
            self.stop().await;
        }
    }

    /// Ends the program, which has taken long enough: asks, then kills.
    pub async fn stop(&self) {
        self.handle.order(Signal::TERM);
        if tokio::time::timeout(TERM_GRACE, self.wait()).await.is_ok() {
            return;
        }
        self.handle.order(Signal::KILL);
        self.wait().await;
    }
}

impl Handle {
    /// Waits until the process that was started has ended.
    pub(crate) async fn wait(&self) -> Option<ExitStatus> {
        let mut ended = self.ended.clone();
        // The channel closes without a status only if the runtime is being torn down.
        ended.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Sends a signal to the process that was started, if it has not ended.
    pub(crate) fn order(&self, signal: Signal) {
        // Who receives no orders any more has ended.
        let _ = self.orders.send(signal);
    }
}

/// The child as its keeper holds it: only the keeper reaps it, so the pid is its own for as long
/// as signals are sent to it.
struct Kept {
    child: tokio::process::Child,
    pid: Pid,
    shimmed: bool,
    ended: bool,
}

impl Kept {
    async fn keep(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Signal>,
        tell: watch::Sender<Option<ExitStatus>>,
    ) {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status.ok(),
                order = orders.recv() => match order {
                    Some(signal) => self.signal(signal),
                    // No one is interested any more.
                    None => return,
                },
            }
        };
        self.ended = true;
        if !self.shimmed {
            // What is left of its group; the shim has seen to that already.
            let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        }
        tell.send_replace(status);
    }

    fn signal(&self, signal: Signal) {
        // Who cannot be reached has just ended.
        let _ = if self.shimmed {
            rustix::process::kill_process(self.pid, signal)
        } else {
            rustix::process::kill_process_group(self.pid, signal)
        };
    }
}

/// The last resort, when no one waits any more or the runtime is torn down. The shim must not be
/// killed: it is told to end, and it ends the others.
impl Drop for Kept {
    fn drop(&mut self) {
        if !self.ended {
            self.signal(if self.shimmed { Signal::TERM } else { Signal::KILL });
        }
    }
}
