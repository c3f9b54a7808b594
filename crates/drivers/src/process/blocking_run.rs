//! Runs short commands of Polity itself to their end, on a thread for blocking work.

use std::io::{self, Read, Write};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use thiserror::Error;

use super::{ProcessCommand, ProcessLauncher, SupervisionOptions};

/// The maximum output per stream, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 << 20;

/// The shortest and longest pause between two checks for the exit.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(1);
const CHECK_PAUSE_MAX: Duration = Duration::from_millis(20);

/// The limits of a command.
pub(crate) struct BlockingRunLimits<'a> {
    pub(crate) timeout: Duration,
    /// True once the command is to end early.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

/// The output of a command that has exited.
#[derive(Debug)]
pub(crate) struct BlockingRunOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// The reason that a command did not run to its end.
#[derive(Debug, Error)]
pub(crate) enum BlockingRunError {
    #[error("it cannot be started: {0}")]
    NotStarted(#[source] io::Error),
    #[error("it did not exit within {} s and was ended", .0.as_secs())]
    TimedOut(Duration),
    #[error("it was stopped")]
    Stopped,
    #[error("it wrote more than {OUTPUT_BYTES_MAX} bytes and was ended")]
    TooMuchOutput,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ProcessLauncher {
    /// Runs a command to its end and returns its output. Blocks; needs no Tokio runtime.
    pub(crate) fn run_to_end(
        &self,
        program: &ProcessCommand,
        input: &[u8],
        limits: &BlockingRunLimits<'_>,
    ) -> Result<BlockingRunOutput, BlockingRunError> {
        let mut command = self.command(program, &SupervisionOptions::default(), Stdio::piped());
        let mut child = command.spawn().map_err(BlockingRunError::NotStarted)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            scope.spawn(move || {
                // The command need not read its input.
                let _ = stdin.map(|mut stdin| stdin.write_all(input));
            });
            let stdout = scope.spawn(move || read_output(stdout));
            let stderr = scope.spawn(move || read_output(stderr));
            let status = self.wait_with_limits(&mut child, limits);
            let joined = |read: thread::ScopedJoinHandle<'_, _>| {
                read.join()
                    .unwrap_or_else(|_| Err(io::Error::other("a reader has panicked").into()))
            };
            let (stdout, stderr) = (joined(stdout), joined(stderr));
            Ok(BlockingRunOutput { status: status?, stdout: stdout?, stderr: stderr? })
        })
    }

    fn wait_with_limits(
        &self,
        child: &mut Child,
        limits: &BlockingRunLimits<'_>,
    ) -> Result<ExitStatus, BlockingRunError> {
        let deadline = Instant::now() + limits.timeout;
        let mut pause = CHECK_PAUSE_MIN;
        let reason = loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if (limits.is_stopped)() {
                break BlockingRunError::Stopped;
            }
            if Instant::now() >= deadline {
                break BlockingRunError::TimedOut(limits.timeout);
            }
            thread::sleep(pause);
            pause = CHECK_PAUSE_MAX.min(pause * 2);
        };
        // The child is not reaped yet, so its id is valid. An unreachable process has just exited.
        let pid = Pid::from_child(child);
        let _ = match self {
            // The shim ends the whole tree.
            Self::Shim(_) => rustix::process::kill_process(pid, Signal::TERM),
            Self::Direct => rustix::process::kill_process_group(pid, Signal::KILL),
        };
        child.wait()?;
        Err(reason)
    }
}

/// Reads a stream up to the limit. Dropping the rest ends a command that goes on writing.
fn read_output(stream: Option<impl Read>) -> Result<Vec<u8>, BlockingRunError> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    }
    if bytes.len() > OUTPUT_BYTES_MAX {
        return Err(BlockingRunError::TooMuchOutput);
    }
    Ok(bytes)
}
