//! Masks chunks of bytes as they arrive.

use super::SecretMask;
use super::masked_span::{self, MaskedSpan};
use super::plan::{self, LINE_BYTES_MAX, MaskState};

/// Masks a stream in chunks of any size; chunk boundaries do not affect the result.
///
/// Holds back an incomplete line until it ends or reaches `LINE_BYTES_MAX`.
#[derive(Debug)]
pub struct MaskStream {
    mask: SecretMask,
    state: MaskState,
    pub(super) held: Vec<u8>,
    /// The number of bytes already written for the incomplete line.
    written: usize,
    /// Reused to avoid allocations.
    spans: Vec<MaskedSpan>,
}

impl MaskStream {
    pub(super) fn new(mask: SecretMask) -> Self {
        let (held, spans) = (Vec::new(), Vec::new());
        Self { mask, state: MaskState::default(), held, written: 0, spans }
    }

    /// Masks the next bytes and writes those that can be shown.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.held.is_empty() {
            let line_end = memchr::memchr(b'\n', rest).map(|at| at + 1);
            let room = LINE_BYTES_MAX - self.held.len();
            let (taken, left) = rest.split_at(line_end.unwrap_or(rest.len()).min(room));
            self.held.extend_from_slice(taken);
            rest = left;
            if self.held.ends_with(b"\n") || self.held.len() == LINE_BYTES_MAX {
                self.write_held(false, out);
            }
        }
        if !rest.is_empty() {
            let done = self.write(rest, false, out);
            self.held.extend_from_slice(&rest[done..]);
        }
    }

    /// Writes as much of an incomplete line as possible, for example a prompt. Call this when no
    /// bytes have arrived for a while.
    pub fn idle(&mut self, out: &mut Vec<u8>) {
        match self.state {
            MaskState::Text => {}
            MaskState::Block(_) | MaskState::Secret | MaskState::Key => return,
        }
        let (end, spans) = plan::finished_prefix(&self.mask.matchers, &self.held);
        let mut shown = Vec::new();
        masked_span::write_masked(&self.held[..end], &spans, &mut shown);
        if let Some(new) = shown.get(self.written..) {
            out.extend_from_slice(new);
            self.written = shown.len();
        }
    }

    /// Writes the rest at the end of the stream.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.write_held(true, out);
    }

    fn write_held(&mut self, ends: bool, out: &mut Vec<u8>) {
        let held = std::mem::take(&mut self.held);
        let before = out.len();
        let done = self.write(&held, ends, out);
        let again = self.written.min(out.len() - before);
        out.drain(before..before + again);
        self.written = 0;
        self.held = held;
        self.held.drain(..done);
    }

    fn write(&mut self, text: &[u8], ends: bool, out: &mut Vec<u8>) -> usize {
        self.spans.clear();
        let done = plan::plan(&self.mask.matchers, text, ends, &mut self.state, &mut self.spans);
        masked_span::write_masked(&text[..done], &self.spans, out);
        done
    }
}
