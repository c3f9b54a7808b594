//! Reads one stream of a process, always and at once, so that the process never blocks on it.

use std::sync::Arc;
use std::time::Duration;

use polity_masking::MaskStream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use crate::cli::output::json_rpc::{RpcResponse, RpcResponseScanner};
use crate::cli::output::live_output::LiveOutput;
use crate::cli::output::output_file::OutputFile;
use crate::cli::output::parser::{AnswerParser, ParsedOutput, Utf8Decoder};
use crate::cli::run::deadlines::LastOutput;
use crate::process::OutputTail;

/// The initial chunk size, in bytes. Most agents write little.
const CHUNK_BYTES_FIRST: usize = 8 << 10;

/// The chunk size for agents that write a lot, in bytes.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// The idle time after which an unfinished line is shown.
const UNFINISHED_LINE_WAIT: Duration = Duration::from_millis(200);

/// The consumer of the masked text of one stream.
#[derive(Debug)]
pub(crate) enum StreamParser {
    /// Parses the answer.
    Answer(Box<AnswerParser>),
    /// Finds the JSON-RPC response and signals its arrival.
    Response(RpcResponseScanner, Option<watch::Sender<bool>>),
    /// Only shows the text.
    Show(Utf8Decoder),
}

#[derive(Debug)]
pub(crate) enum ParsedStream {
    Answer(ParsedOutput),
    Response(Option<RpcResponse>),
    Nothing,
}

impl StreamParser {
    /// Parses the next bytes and returns the text to show.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        match self {
            Self::Answer(parser) => parser.push(bytes),
            Self::Response(responses, arrived) => {
                responses.push(bytes);
                if responses.response().is_some()
                    && let Some(arrived) = arrived.take()
                {
                    arrived.send_replace(true);
                }
                String::new()
            }
            Self::Show(characters) => characters.push(bytes),
        }
    }

    /// The result, and the remaining text to show.
    pub(crate) fn finish(self) -> (ParsedStream, String) {
        match self {
            Self::Answer(parser) => {
                let mut parsed = parser.finish();
                let rest = std::mem::take(&mut parsed.remaining_text);
                (ParsedStream::Answer(parsed), rest)
            }
            Self::Response(responses, _) => {
                (ParsedStream::Response(responses.finish()), String::new())
            }
            Self::Show(mut characters) => (ParsedStream::Nothing, characters.finish()),
        }
    }
}

/// The summary of one stream after its end.
#[derive(Debug)]
pub(crate) struct StreamSummary {
    /// The number of bytes that the process wrote.
    pub(crate) bytes: u64,
    pub(crate) parsed: ParsedStream,
    pub(crate) last_lines: String,
    /// True if an output file exists.
    pub(crate) is_stored: bool,
    /// True if the output file is truncated.
    pub(crate) is_truncated: bool,
}

/// Reads one stream of a process and passes it on.
pub(crate) struct OutputReader {
    pub(crate) stream: MaskStream,
    pub(crate) file: OutputFile,
    pub(crate) parser: StreamParser,
    pub(crate) live: LiveOutput,
    pub(crate) last_output: Arc<LastOutput>,
}

impl OutputReader {
    /// Reads until the stream ends or `stop` becomes true.
    pub(crate) async fn read_to_end(
        mut self,
        mut pipe: impl AsyncRead + Unpin + Send,
        mut stop: watch::Receiver<bool>,
    ) -> StreamSummary {
        let mut bytes = 0;
        let mut tail = OutputTail::default();
        let mut chunk = Vec::with_capacity(CHUNK_BYTES_FIRST);
        let mut masked = Vec::new();
        let mut is_within_line = false;
        loop {
            chunk.clear();
            let read = tokio::select! {
                biased;
                read = pipe.read_buf(&mut chunk) => read,
                () = tokio::time::sleep(UNFINISHED_LINE_WAIT), if is_within_line => {
                    is_within_line = false;
                    self.stream.idle(&mut masked);
                    self.pass_on(&mut masked, &mut tail);
                    continue;
                }
                // The sender lives until both streams are read.
                _ = stop.wait_for(|stop| *stop) => break,
            };
            // A read error ends the stream.
            let Ok(count @ 1..) = read else { break };
            self.last_output.record();
            bytes += count as u64;
            is_within_line = !chunk.ends_with(b"\n");
            self.stream.push(&chunk, &mut masked);
            self.pass_on(&mut masked, &mut tail);
            if count == chunk.capacity() && count < CHUNK_BYTES_MAX {
                chunk.clear();
                chunk.reserve_exact(CHUNK_BYTES_MAX);
            }
        }
        self.finish(bytes, masked, tail)
    }

    fn pass_on(&mut self, masked: &mut Vec<u8>, tail: &mut OutputTail) {
        self.file.write(masked);
        tail.push(masked);
        let shown = self.parser.push(masked);
        self.live.push(&shown);
        masked.clear();
    }

    fn finish(self, bytes: u64, mut masked: Vec<u8>, mut tail: OutputTail) -> StreamSummary {
        let Self { stream, mut file, mut parser, live, .. } = self;
        stream.finish(&mut masked);
        file.write(&masked);
        tail.push(&masked);
        live.push(&parser.push(&masked));
        let (parsed, rest) = parser.finish();
        live.push(&rest);
        let is_truncated = file.is_truncated;
        StreamSummary {
            bytes,
            parsed,
            last_lines: tail.last_lines(),
            is_stored: file.finish(),
            is_truncated,
        }
    }
}
