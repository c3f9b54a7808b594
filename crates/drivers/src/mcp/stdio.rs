//! Messages over the pipes of a child process, one per line.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::{MESSAGE_BYTES_MAX, lenient};
use crate::process::{ChildProcess, StartedProcess};
use crate::secrets::Secrets;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// How much of a line that is no message is shown, in characters.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// How long stdout may stay open after its program has ended; someone else may hold it.
const REST_WAIT: Duration = Duration::from_millis(500);

/// Lines on stdout that are no messages. Servers should not print them, but some do.
#[derive(Debug, Clone)]
pub(super) struct Garbage {
    seen: Arc<Mutex<(usize, String)>>,
    secrets: Secrets,
}

impl Garbage {
    /// None yet, and none of these secrets will be in them.
    pub(super) fn new(secrets: Secrets) -> Self {
        Self { seen: Arc::default(), secrets }
    }

    /// How many lines there were, and the beginning of the first.
    pub(super) fn seen(&self) -> Option<(usize, String)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.0 > 0).then(|| seen.clone())
    }

    fn note(&self, server: &str, line: &[u8]) {
        // Of the whole line, so that nothing is left of a secret that the limit would cut.
        let text = self.secrets.removed_from(&String::from_utf8_lossy(line));
        let shown: String = text.trim().chars().take(SHOWN_CHARACTERS_MAX).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0 += 1;
        let (count, what) = (seen.0, "a line on the server's stdout is no message");
        // A server that prints one prints many.
        if count == 1 {
            tracing::warn!(server, "{what}: {shown}");
            seen.1 = shown;
        } else {
            tracing::debug!(server, count, "{what}: {shown}");
        }
    }
}

/// A transport over the pipes of a child process.
pub(super) struct Stdio {
    server: String,
    child: ChildProcess,
    lines: Lines,
    to_write: Option<mpsc::UnboundedSender<Outgoing>>,
    writer: JoinHandle<()>,
    garbage: Garbage,
    /// Whether the server has said anything yet.
    heard: bool,
}

struct Outgoing {
    line: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl Stdio {
    /// Talks to a program that was just started.
    pub(super) fn new(server: &str, started: StartedProcess, garbage: Garbage) -> Self {
        let StartedProcess { child, stdin, stdout } = started;
        let (to_write, queue) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write(stdin, queue));
        let lines =
            Lines { stdout: BufReader::with_capacity(READ_BYTES, stdout), line: Vec::new() };
        Self {
            server: server.to_owned(),
            child,
            lines,
            to_write: Some(to_write),
            writer,
            garbage,
            heard: false,
        }
    }
}

/// Writes lines in the order in which they were given. It is a task of its own so that a line is
/// never cut short because someone stopped waiting for it.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::UnboundedReceiver<Outgoing>) {
    while let Some(Outgoing { line, written }) = queue.recv().await {
        let result = stdin.write_all(&line).await;
        let failed = result.is_err();
        // Who stopped waiting need not be told.
        let _ = written.send(result);
        if failed {
            return;
        }
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (written, result) = oneshot::channel();
        let queued = serde_json::to_vec(&message).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            let queue = self.to_write.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            queue.send(Outgoing { line, written }).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(())
        });
        let opening = !self.heard;
        async move {
            queued?;
            let closed = || Err(io::ErrorKind::BrokenPipe.into());
            match result.await.unwrap_or_else(|_| closed()) {
                // It ended before it read the first message. What it wrote instead says more.
                Err(_) if opening => Ok(()),
                result => result,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                () = long_ended(&self.child) => return None,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(server = self.server, %error, "stdout cannot be read");
                    return None;
                }
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            match lenient::message(&line) {
                Some(message) => {
                    self.heard = true;
                    return Some(message);
                }
                None => self.garbage.note(&self.server, &line),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.to_write = None;
        self.writer.abort();
        Ok(())
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Waits until the program has ended and what it wrote must have been read.
async fn long_ended(child: &ChildProcess) {
    child.wait().await;
    tokio::time::sleep(REST_WAIT).await;
}

struct Lines {
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl Lines {
    /// The next line, without its end. May be abandoned and called again: what was read of a line
    /// is kept.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let read = self.stdout.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let (count, ends) = match read.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (read.len(), false),
            };
            self.line.extend_from_slice(&read[..count]);
            self.stdout.consume(count);
            if ends {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
            if self.line.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::other(format!(
                    "a line is longer than {MESSAGE_BYTES_MAX} bytes"
                )));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_no_messages_are_shown_without_secrets_and_in_part() {
        let garbage = Garbage::new(Secrets::new(["s3cret"]));
        assert_eq!(garbage.seen(), None);
        let padding = "x".repeat(SHOWN_CHARACTERS_MAX - 5);
        garbage.note("test", format!("{padding} s3cret\n").as_bytes());
        garbage.note("test", b"s3cret\n");
        assert_eq!(garbage.seen(), Some((2, format!("{padding} ***"))));
    }
}
