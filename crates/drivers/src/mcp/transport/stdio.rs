//! The stdio transport: one message per line over the pipes of a child process.

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

use super::super::MESSAGE_BYTES_MAX;
use super::json_repair;
use super::loss_reason::LossReason;
use super::message_limit::MessageLimit;
use crate::process::{ChildProcess, StartedProcess};
use crate::secrets::SecretSet;

/// The read buffer size, in bytes.
const READ_BYTES: usize = 64 * 1024;

/// The longest excerpt of an invalid line, in characters.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// The longest wait for stdout to close after the exit; another process may hold it open.
const DRAIN_WAIT: Duration = Duration::from_millis(500);

/// Lines on stdout that are not messages. Servers should not print them, but some do.
#[derive(Debug, Clone)]
pub(crate) struct StdoutNoise {
    seen: Arc<Mutex<(usize, String)>>,
    secrets: SecretSet,
}

impl StdoutNoise {
    /// Creates an empty log that redacts these secrets.
    pub(crate) fn new(secrets: SecretSet) -> Self {
        Self { seen: Arc::default(), secrets }
    }

    /// The number of lines and an excerpt of the first.
    pub(crate) fn seen(&self) -> Option<(usize, String)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (seen.0 > 0).then(|| seen.clone())
    }

    fn note(&self, server: &str, line: &[u8]) {
        // Redacted before truncation, so that no part of a secret remains.
        let text = self.secrets.redact(&String::from_utf8_lossy(line));
        let shown: String = text.trim().chars().take(SHOWN_CHARACTERS_MAX).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.0 += 1;
        let (count, what) = (seen.0, "a line on the server's stdout is no message");
        // A server that prints one usually prints many.
        if count == 1 {
            tracing::warn!(server, "{what}: {shown}");
            seen.1 = shown;
        } else {
            tracing::debug!(server, count, "{what}: {shown}");
        }
    }
}

pub(crate) struct StdioTransport {
    server: String,
    child: ChildProcess,
    lines: StdioLineReader,
    to_write: Option<mpsc::UnboundedSender<OutgoingLine>>,
    writer: JoinHandle<()>,
    noise: StdoutNoise,
    loss: LossReason,
    /// True once the server has sent a message.
    has_received: bool,
}

struct OutgoingLine {
    line: Vec<u8>,
    written: oneshot::Sender<io::Result<()>>,
}

impl StdioTransport {
    /// Wraps the pipes of a process that was just started.
    pub(crate) fn new(
        server: &str,
        started: StartedProcess,
        noise: StdoutNoise,
        loss: LossReason,
    ) -> Self {
        let StartedProcess { child, stdin, stdout } = started;
        let (to_write, queue) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write(stdin, queue));
        let lines = StdioLineReader {
            stdout: BufReader::with_capacity(READ_BYTES, stdout),
            line: Vec::new(),
        };
        Self {
            server: server.to_owned(),
            child,
            lines,
            to_write: Some(to_write),
            writer,
            noise,
            loss,
            has_received: false,
        }
    }
}

/// Writes queued lines in order. A separate task, so that a cancelled caller never truncates a
/// line.
async fn write(mut stdin: ChildStdin, mut queue: mpsc::UnboundedReceiver<OutgoingLine>) {
    while let Some(OutgoingLine { line, written }) = queue.recv().await {
        let result = stdin.write_all(&line).await;
        let failed = result.is_err();
        // The caller may have stopped waiting.
        let _ = written.send(result);
        if failed {
            return;
        }
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (written, result) = oneshot::channel();
        let queued = serde_json::to_vec(&message).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            let queue = self.to_write.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            queue.send(OutgoingLine { line, written }).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(())
        });
        let opening = !self.has_received;
        async move {
            queued?;
            let closed = || Err(io::ErrorKind::BrokenPipe.into());
            match result.await.unwrap_or_else(|_| closed()) {
                // The process exited before reading the first message; its output explains more.
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
                () = wait_for_exit(&self.child) => return None,
            };
            let line = match line {
                Ok(Some(line)) => line,
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(server = self.server, %error, "stdout cannot be read");
                    self.loss.set(error.to_string());
                    return None;
                }
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            match json_repair::parse_message(&line) {
                Ok(Some(message)) => {
                    self.has_received = true;
                    return Some(message);
                }
                Ok(None) => self.noise.note(&self.server, &line),
                Err(limit) => {
                    self.loss.set(limit.to_string());
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.to_write = None;
        self.writer.abort();
        Ok(())
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Waits for the exit and for the rest of stdout.
async fn wait_for_exit(child: &ChildProcess) {
    child.wait().await;
    tokio::time::sleep(DRAIN_WAIT).await;
}

struct StdioLineReader {
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
}

impl StdioLineReader {
    /// Returns the next line. Cancel safe: a partial line is kept.
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
                return Err(io::Error::other(MessageLimit::Bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_excerpt_is_redacted_and_truncated() {
        let noise = StdoutNoise::new(SecretSet::new(["s3cret"]));
        assert_eq!(noise.seen(), None);
        let padding = "x".repeat(SHOWN_CHARACTERS_MAX - 5);
        noise.note("test", format!("{padding} s3cret\n").as_bytes());
        noise.note("test", b"s3cret\n");
        assert_eq!(noise.seen(), Some((2, format!("{padding} ***"))));
    }
}
