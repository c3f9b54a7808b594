//! One pass over some lines, or over a piece of one, for all that is secret in them.

use std::ops::Range;

use super::Parts;
use super::hidden::{Hidden, Shown};
use super::judgement::name_start;
use super::key_block::{self, BlockLine};
use super::triggers::Verdict;

/// Something that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Where that begins by which it was found: a name is before its value.
    pub(super) from: usize,
    /// What is hidden; nothing if a secret could begin here, but so far does not.
    pub(super) hidden: Option<Hidden>,
    /// Whether it would be something else if the text went on.
    pub(super) is_open: bool,
    /// Whether it is a private key.
    pub(super) is_key: bool,
}

/// A private key of which more may follow on the next line, and the column in which it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) column: usize,
}

/// The line that a place is in, without what ends it.
pub(super) fn line_around(text: &[u8], at: usize) -> Range<usize> {
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1);
    let rest = &text[at..];
    match memchr::memchr(b'\n', rest) {
        None => start..text.len(),
        Some(length) if length > 0 && rest[length - 1] == b'\r' => start..at + length - 1,
        Some(length) => start..at + length,
    }
}

fn after_line(text: &[u8], line_end: usize) -> usize {
    memchr::memchr(b'\n', &text[line_end..]).map_or(text.len(), |at| line_end + at + 1)
}

/// Tells all that is found in the text, which begins within a block or not. Says whether it ends
/// within one.
pub(super) fn scan(
    parts: &Parts,
    text: &[u8],
    mut block: Option<Block>,
    mut found: impl FnMut(Found),
) -> Option<Block> {
    let known = |start, end| Found {
        from: start,
        hidden: Some(Hidden::secret(start, end)),
        is_open: false,
        is_key: false,
    };
    parts.known.each_in(text, |start, end| found(known(start, end)));
    parts.own.each_in(text, |start, end| {
        found(Found { is_open: end == text.len(), ..known(start, end) });
    });
    let mut from = 0;
    // A block that begins on a line goes on behind the line, of which the rest is looked at first.
    let mut limit = if block.is_some() { 0 } else { text.len() };
    let mut line = 0..0;
    loop {
        let Some(trigger) = parts.triggers.next(&text[..limit], from) else {
            let Some(Block { column }) = block.filter(|_| limit < text.len()) else { return block };
            let (end, is_over) = rest_of_block(text, limit, column, &mut found);
            if !is_over {
                return block;
            }
            (block, from, limit) = (None, end, text.len());
            continue;
        };
        // Whatever is left of a key on this line is hidden already.
        if block.is_some() && trigger.begins_key() {
            from = trigger.end;
            continue;
        }
        if trigger.start >= line.end || line.is_empty() {
            line = line_around(text, trigger.start);
        }
        let offset = line.start;
        let mut tell = |start, end, shown: Option<Shown>, is_open, is_key| {
            let secret = Hidden::secret(start, end).moved(offset);
            let hidden = Hidden { shown: shown.unwrap_or(secret.shown), ..secret };
            let from = name_start(text, trigger.start).min(hidden.start);
            found(Found { from, hidden: Some(hidden), is_open, is_key });
            trigger.end.max(hidden.end)
        };
        from = match trigger.look(&text[line.clone()], line.start) {
            Verdict::Ordinary => trigger.end,
            Verdict::Open { from } => {
                let from = from + offset;
                found(Found { from, hidden: None, is_open: true, is_key: false });
                trigger.end
            }
            Verdict::Secret { start, end, open } => tell(start, end, None, open, false),
            Verdict::Key { start, end, open } => {
                if open {
                    block = Some(Block { column: start });
                    limit = after_line(text, line.end);
                }
                tell(start, end, Some(Shown::Mask), open, true)
            }
        };
    }
}

/// Hides the lines from a place on that belong to a block. Says where it goes on behind them, and
/// whether the block is over there.
fn rest_of_block(
    text: &[u8],
    from: usize,
    column: usize,
    found: &mut impl FnMut(Found),
) -> (usize, bool) {
    let mut start = from;
    while start < text.len() {
        let line = line_around(text, start);
        let next = after_line(text, line.end);
        let (end, is_over) = match key_block::look_within(&text[line.clone()], column) {
            BlockLine::Foreign => return (start, true),
            BlockLine::Key => (next, false),
            BlockLine::Last { end } if start + end == line.end => (next, true),
            BlockLine::Last { end } => (start + end, true),
        };
        let hidden = Some(Hidden { start, end, shown: Shown::Nothing });
        found(Found { from: start, hidden, is_open: false, is_key: true });
        if is_over {
            return (end, true);
        }
        start = next;
    }
    (start, false)
}
