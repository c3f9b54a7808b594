//! Bytes that arrive one after the other.

use super::Mask;
use super::hidden::{self, Hidden};
use super::plan::{self, LINE_BYTES_MAX, State};

/// Masks bytes as they arrive, in pieces of any size. Where they are divided makes no difference.
///
/// A line is held back until its end is there, or until it is `LINE_BYTES_MAX` long.
#[derive(Debug)]
pub struct Stream {
    mask: Mask,
    state: State,
    /// The line that has no end yet.
    pub(super) held: Vec<u8>,
    /// How many bytes have been written for the line that is held.
    written: usize,
    /// Kept for the sake of its memory.
    hidden: Vec<Hidden>,
}

impl Stream {
    pub(super) fn new(mask: Mask) -> Self {
        let (held, hidden) = (Vec::new(), Vec::new());
        Self { mask, state: State::default(), held, written: 0, hidden }
    }

    /// Takes the next bytes, and writes what can be shown.
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

    /// Writes what can be shown of a line that has no end yet, such as a question that waits for
    /// its answer. To be called when nothing has arrived for a while.
    pub fn idle(&mut self, out: &mut Vec<u8>) {
        match self.state {
            State::Text => {}
            State::Block(_) | State::Secret | State::Key => return,
        }
        let (end, hidden) = plan::settled(&self.mask.parts, &self.held);
        let mut shown = Vec::new();
        hidden::write_rest(&self.held[..end], &hidden, &mut shown);
        if let Some(new) = shown.get(self.written..) {
            out.extend_from_slice(new);
            self.written = shown.len();
        }
    }

    /// Writes the rest; nothing more follows.
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
        self.hidden.clear();
        let done = plan::plan(&self.mask.parts, text, ends, &mut self.state, &mut self.hidden);
        hidden::write_rest(&text[..done], &self.hidden, out);
        done
    }
}
