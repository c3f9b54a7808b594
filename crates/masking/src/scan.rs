//! One pass over some lines, or a piece of one, for all secrets.

use std::ops::Range;

use super::MaskMatchers;
use super::detectors::TriggerVerdict;
use super::detectors::heuristics::name_start;
use super::detectors::key_block::{self, KeyBlockLine};
use super::masked_span::{MaskedSpan, SpanMask};

#[derive(Debug, Clone, Copy)]
pub(super) struct SecretMatch {
    /// The start of the match; a name precedes its value.
    pub(super) from: usize,
    /// The span to mask; `None` if a secret may start here but is not complete.
    pub(super) span: Option<MaskedSpan>,
    /// True if more text could change the match.
    pub(super) is_open: bool,
    /// True for a private key.
    pub(super) is_key: bool,
}

/// The extent of a text to scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextExtent {
    /// Complete lines, or a piece of a long one.
    Complete,
    /// The start of a line that continues later.
    Incomplete,
}

/// An unfinished private key, and the column in which it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyBlock {
    pub(super) column: usize,
}

/// The line at a position, without its line end.
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

/// Calls `found` with each match in the text. Takes and returns the unfinished key block.
pub(super) fn scan(
    matchers: &MaskMatchers,
    text: &[u8],
    extent: TextExtent,
    mut block: Option<KeyBlock>,
    mut found: impl FnMut(SecretMatch),
) -> Option<KeyBlock> {
    let known = |start, end| SecretMatch {
        from: start,
        span: Some(MaskedSpan::secret(start, end)),
        is_open: false,
        is_key: false,
    };
    matchers.known.find_all(text, |start, end| found(known(start, end)));
    matchers.rules.find_all(text, extent, &mut found);
    let mut from = 0;
    // A block continues after its first line, whose rest is scanned first.
    let mut limit = if block.is_some() { 0 } else { text.len() };
    let mut line = 0..0;
    loop {
        let Some(trigger) = matchers.triggers.next(&text[..limit], from) else {
            let Some(KeyBlock { column }) = block.filter(|_| limit < text.len()) else {
                return block;
            };
            let (end, is_over) = rest_of_block(text, limit, column, &mut found);
            if !is_over {
                return block;
            }
            (block, from, limit) = (None, end, text.len());
            continue;
        };
        // The rest of a key on this line is already masked.
        if block.is_some() && trigger.begins_key() {
            from = trigger.end;
            continue;
        }
        if trigger.start >= line.end || line.is_empty() {
            line = line_around(text, trigger.start);
        }
        let offset = line.start;
        let mut report = |start, end, replacement: Option<SpanMask>, is_open, is_key| {
            let secret = MaskedSpan::secret(start, end).shifted(offset);
            let span =
                MaskedSpan { replacement: replacement.unwrap_or(secret.replacement), ..secret };
            let from = name_start(text, trigger.start).min(span.start);
            found(SecretMatch { from, span: Some(span), is_open, is_key });
            trigger.end.max(span.end)
        };
        from = match trigger.detect(&text[line.clone()], line.start) {
            TriggerVerdict::NotSecret => trigger.end,
            TriggerVerdict::Undecided { from } => {
                let from = from + offset;
                found(SecretMatch { from, span: None, is_open: true, is_key: false });
                trigger.end
            }
            TriggerVerdict::Secret { start, end, open } => report(start, end, None, open, false),
            TriggerVerdict::Key { start, end, open } => {
                if open {
                    block = Some(KeyBlock { column: start });
                    limit = after_line(text, line.end);
                }
                report(start, end, Some(SpanMask::Mask), open, true)
            }
        };
    }
}

/// Masks the lines of a block. Returns the position after them, and whether the block is over.
fn rest_of_block(
    text: &[u8],
    from: usize,
    column: usize,
    found: &mut impl FnMut(SecretMatch),
) -> (usize, bool) {
    let mut start = from;
    while start < text.len() {
        let line = line_around(text, start);
        let next = after_line(text, line.end);
        let (end, is_over) = match key_block::detect_continuation(&text[line.clone()], column) {
            KeyBlockLine::Foreign => return (start, true),
            KeyBlockLine::Key => (next, false),
            KeyBlockLine::Last { end } if start + end == line.end => (next, true),
            KeyBlockLine::Last { end } => (start + end, true),
        };
        let span = Some(MaskedSpan::continuation(start, end, end == next));
        found(SecretMatch { from: start, span, is_open: false, is_key: true });
        if is_over {
            return (end, true);
        }
        start = next;
    }
    (start, false)
}
