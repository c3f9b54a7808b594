//! Reading what a program writes. It is read always and at once, whatever becomes of it: masked,
//! then kept, looked through and shown.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;

use super::clock::Heard;
use super::kept::KeptFile;
use super::live::Live;
use super::parser::{Characters, Parsed, Parser};
use super::rpc::{Response, Responses};
use crate::masking::Stream;
use crate::process::Tail;

/// How much is read at once, at first; in bytes. There are many programs that say little.
const CHUNK_BYTES_FIRST: usize = 8 << 10;

/// How much is read at once from a program that says a lot, in bytes.
const CHUNK_BYTES_MAX: usize = 256 << 10;

/// After how long without a word a line is shown that has no end yet.
const UNFINISHED_LINE_WAIT: Duration = Duration::from_millis(200);

/// Who looks through what was read.
#[derive(Debug)]
pub(super) enum Reader {
    /// Looks for the answer.
    Answer(Box<Parser>),
    /// Looks for the response to a request, and tells when it is there.
    Response(Responses, Option<watch::Sender<bool>>),
    /// Only shows it.
    Show(Characters),
}

/// What a reader found.
#[derive(Debug)]
pub(super) enum Read {
    Answer(Parsed),
    Response(Option<Response>),
    Nothing,
}

impl Reader {
    /// What is to be shown of the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        match self {
            Self::Answer(parser) => parser.push(bytes),
            Self::Response(responses, tell) => {
                responses.push(bytes);
                if responses.response().is_some()
                    && let Some(tell) = tell.take()
                {
                    tell.send_replace(true);
                }
                String::new()
            }
            Self::Show(characters) => characters.push(bytes),
        }
    }

    /// What was found, and what is still to be shown.
    pub(super) fn finish(self) -> (Read, String) {
        match self {
            Self::Answer(parser) => {
                let mut parsed = parser.finish();
                let rest = std::mem::take(&mut parsed.rest_shown);
                (Read::Answer(parsed), rest)
            }
            Self::Response(responses, _) => (Read::Response(responses.finish()), String::new()),
            Self::Show(mut characters) => (Read::Nothing, characters.finish()),
        }
    }
}

/// What became of one stream of a program.
#[derive(Debug)]
pub(super) struct Drained {
    /// How much the program wrote, in bytes.
    pub(super) bytes: u64,
    /// What was found in it.
    pub(super) read: Read,
    /// Its last lines.
    pub(super) last_lines: String,
    /// Whether there is a file with what is kept.
    pub(super) is_kept: bool,
    /// Whether something was not kept.
    pub(super) is_cut: bool,
}

/// Takes what one stream of a program brings.
pub(super) struct Drain {
    pub(super) stream: Stream,
    pub(super) kept: KeptFile,
    pub(super) reader: Reader,
    pub(super) live: Live,
    pub(super) heard: Arc<Heard>,
}

impl Drain {
    /// Reads until the stream ends, or until nothing more is to be expected.
    pub(super) async fn drain(
        mut self,
        mut pipe: impl AsyncRead + Unpin + Send,
        mut over: watch::Receiver<bool>,
    ) -> Drained {
        let mut bytes = 0;
        let mut tail = Tail::default();
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
                // Its sender is there until everything is read.
                _ = over.wait_for(|over| *over) => break,
            };
            // A pipe that cannot be read has nothing more to say.
            let Ok(count @ 1..) = read else { break };
            self.heard.now();
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

    fn pass_on(&mut self, masked: &mut Vec<u8>, tail: &mut Tail) {
        self.kept.write(masked);
        tail.push(masked);
        let shown = self.reader.push(masked);
        self.live.show(&shown);
        masked.clear();
    }

    fn finish(self, bytes: u64, mut masked: Vec<u8>, mut tail: Tail) -> Drained {
        let Self { stream, mut kept, mut reader, live, .. } = self;
        stream.finish(&mut masked);
        kept.write(&masked);
        tail.push(&masked);
        live.show(&reader.push(&masked));
        let (read, rest) = reader.finish();
        live.show(&rest);
        let is_cut = kept.is_cut;
        Drained { bytes, read, last_lines: tail.last_lines(), is_kept: kept.finish(), is_cut }
    }
}
