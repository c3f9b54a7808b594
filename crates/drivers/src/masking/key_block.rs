//! Private keys between `-----BEGIN … PRIVATE KEY-----` and `-----END … PRIVATE KEY-----`, on one
//! line, as within JSON, or on many. One that is cut off ends where its lines do.

use super::judgement::run_end;
use super::triggers::{Hit, Verdict};

/// What a block begins with.
pub(super) const BEGIN: &str = "-----BEGIN";

const END: &[u8] = b"-----END";
const DASHES: &[u8] = b"-----";
const PRIVATE: &[u8] = b"PRIVATE KEY";

/// What stands between the dashes is no longer than that.
const LABEL_BYTES_MAX: usize = 64;

/// A stretch of base64 that is that long is part of the key, wherever it stands on a line.
const STRETCH_BYTES_MIN: usize = 32;

/// Lines that say how a key is encrypted or who made it.
const HEADERS: [&[u8]; 4] = [b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:"];

/// What a line is within a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockLine {
    /// Part of the key.
    Key,
    /// The last line; the block ends within it.
    Last { end: usize },
    /// No part of the block, which was cut off.
    Foreign,
}

/// How the words between the dashes end.
enum Label {
    Private { end: usize },
    Other,
    CutOff,
}

/// Reads on behind `-----BEGIN` or `-----END`.
fn label(line: &[u8], from: usize) -> Label {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ';
    let latest = line.len().min(from + LABEL_BYTES_MAX);
    let end = run_end(&line[..latest], from, is_letter);
    let rest = &line[end..];
    if DASHES.starts_with(rest) && rest.len() < DASHES.len() {
        return Label::CutOff;
    }
    let is_private = line[from..end].windows(PRIVATE.len()).any(|part| part == PRIVATE);
    if is_private && rest.starts_with(DASHES) {
        Label::Private { end: end + DASHES.len() }
    } else {
        Label::Other
    }
}

/// Looks at a line on which a block may begin.
pub(super) fn look(line: &[u8], hit: Hit) -> Verdict {
    match label(line, hit.end) {
        Label::Other => Verdict::Ordinary,
        Label::CutOff => Verdict::Open { from: hit.start },
        Label::Private { end } => {
            let whole = end_of_block(line, end);
            let end = whole.unwrap_or_else(|| end_of_last_stretch(line, end));
            Verdict::Key { start: hit.start, end, open: whole.is_none() }
        }
    }
}

fn end_of_block(line: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find_iter(&line[from..], END).find_map(|at| {
        match label(line, from + at + END.len()) {
            Label::Private { end } => Some(end),
            Label::Other | Label::CutOff => None,
        }
    })
}

/// Where the key ends on a line that does not say so.
fn end_of_last_stretch(line: &[u8], from: usize) -> usize {
    let mut last = from;
    let mut at = from;
    while at < line.len() {
        let end = run_end(line, at, is_base64);
        // What follows a stretch right behind a backslash is the next line of the key.
        let goes_on = last > from && at == last + 1 && line[last] == b'\\';
        if end - at >= STRETCH_BYTES_MIN || goes_on {
            last = end;
        }
        at = end + 1;
    }
    last
}

/// How far a key goes on from the beginning of a piece of a line, and whether its end is there.
pub(super) fn rest_on_line(piece: &[u8]) -> (usize, bool) {
    let end = run_end(piece, 0, |byte| is_base64(byte) || byte == b'\\' || byte == b' ');
    if !piece[end..].starts_with(END) {
        return (end, end < piece.len() && !END.starts_with(&piece[end..]));
    }
    match label(piece, end + END.len()) {
        Label::Private { end } => (end, true),
        Label::Other => (end, true),
        Label::CutOff => (end, false),
    }
}

/// Looks at a line behind one on which a block began, at the given column.
pub(super) fn look_within(line: &[u8], column: usize) -> BlockLine {
    if let Some(end) = end_of_block(line, 0) {
        return BlockLine::Last { end };
    }
    let text = without_quotes(line);
    let in_column = without_quotes(line.get(column..).unwrap_or_default());
    let is_header = HEADERS.iter().any(|name| in_column.starts_with(name));
    // What stands before the key, such as a time, has the same width on all of its lines.
    let is_key =
        |word: &[u8]| word.len().is_multiple_of(4) && word.iter().all(|byte| is_base64(*byte));
    let is_in_column = !in_column.is_empty() && is_key(in_column);
    let stretch = text.iter().rev().take_while(|byte| is_base64(**byte)).count();
    if is_key(text) || is_in_column || is_header || stretch >= STRETCH_BYTES_MIN {
        BlockLine::Key
    } else {
        BlockLine::Foreign
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// The line without what code puts around its texts.
fn without_quotes(line: &[u8]) -> &[u8] {
    let is_around = |byte: &u8| byte.is_ascii_whitespace() || b"\"',;\\".contains(byte);
    let trimmed = |text: &[u8]| text.len() - text.iter().rev().take_while(|b| is_around(b)).count();
    let start = line.iter().take_while(|byte| is_around(byte)).count();
    let text = &line[start.min(trimmed(line))..trimmed(line)];
    text.strip_suffix(b"\\n").map_or(text, |text| &text[..trimmed(text)])
}
