//! Private keys from `-----BEGIN … PRIVATE KEY-----` to `-----END … PRIVATE KEY-----`, on one line,
//! as in JSON, or on many. A truncated key ends with its last line of base64.

use super::heuristics::run_end;
use super::{TriggerSpan, TriggerVerdict};

/// The start of a block.
pub(crate) const BEGIN: &str = "-----BEGIN";

const END: &[u8] = b"-----END";
const DASHES: &[u8] = b"-----";
const PRIVATE: &[u8] = b"PRIVATE KEY";

const LABEL_BYTES_MAX: usize = 64;

/// The minimum length of base64 that counts as key data anywhere on a line.
const STRETCH_BYTES_MIN: usize = 32;

/// Headers of encrypted keys.
const HEADERS: [&[u8]; 4] = [b"Proc-Type:", b"DEK-Info:", b"Version:", b"Comment:"];

/// The role of a line in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyBlockLine {
    Key,
    /// The last line; the block ends within it.
    Last {
        end: usize,
    },
    /// Not part of the block, which is truncated.
    Foreign,
}

/// The label between the dashes.
enum PemLabel {
    Private { end: usize },
    Other,
    CutOff,
}

/// Parses the label after `-----BEGIN` or `-----END`.
fn label(line: &[u8], from: usize) -> PemLabel {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ';
    let latest = line.len().min(from + LABEL_BYTES_MAX);
    let end = run_end(&line[..latest], from, is_letter);
    let rest = &line[end..];
    if DASHES.starts_with(rest) && rest.len() < DASHES.len() {
        return PemLabel::CutOff;
    }
    let is_private = line[from..end].windows(PRIVATE.len()).any(|part| part == PRIVATE);
    if is_private && rest.starts_with(DASHES) {
        PemLabel::Private { end: end + DASHES.len() }
    } else {
        PemLabel::Other
    }
}

/// Checks a line on which a block may start.
pub(crate) fn detect(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    match label(line, trigger.end) {
        PemLabel::Other => TriggerVerdict::NotSecret,
        PemLabel::CutOff => TriggerVerdict::Undecided { from: trigger.start },
        PemLabel::Private { end } => {
            let whole = end_of_block(line, end);
            let end = whole.unwrap_or_else(|| end_of_last_stretch(line, end));
            TriggerVerdict::Key { start: trigger.start, end, open: whole.is_none() }
        }
    }
}

fn end_of_block(line: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find_iter(&line[from..], END).find_map(|at| {
        match label(line, from + at + END.len()) {
            PemLabel::Private { end } => Some(end),
            PemLabel::Other | PemLabel::CutOff => None,
        }
    })
}

/// The end of the key data on a line without an end marker.
fn end_of_last_stretch(line: &[u8], from: usize) -> usize {
    let mut last = from;
    let mut at = from;
    while at < line.len() {
        let end = run_end(line, at, is_base64);
        // Base64 after a backslash is the next line of the key.
        let goes_on = last > from && at == last + 1 && line[last] == b'\\';
        if end - at >= STRETCH_BYTES_MIN || goes_on {
            last = end;
        }
        at = end + 1;
    }
    last
}

/// The end of key data at the start of a piece, and whether the key ends there.
pub(crate) fn rest_on_line(piece: &[u8]) -> (usize, bool) {
    let end = run_end(piece, 0, |byte| is_base64(byte) || byte == b'\\' || byte == b' ');
    if !piece[end..].starts_with(END) {
        return (end, end < piece.len() && !END.starts_with(&piece[end..]));
    }
    match label(piece, end + END.len()) {
        PemLabel::Private { end } => (end, true),
        PemLabel::Other => (end, true),
        PemLabel::CutOff => (end, false),
    }
}

/// Checks a line within a block that started at the given column.
pub(crate) fn detect_continuation(line: &[u8], column: usize) -> KeyBlockLine {
    if let Some(end) = end_of_block(line, 0) {
        return KeyBlockLine::Last { end };
    }
    let text = without_quotes(line);
    let in_column = without_quotes(line.get(column..).unwrap_or_default());
    let is_header = HEADERS.iter().any(|name| in_column.starts_with(name));
    // A prefix such as a timestamp has the same width on all lines.
    let is_key =
        |word: &[u8]| word.len().is_multiple_of(4) && word.iter().all(|byte| is_base64(*byte));
    let is_in_column = !in_column.is_empty() && is_key(in_column);
    let stretch = text.iter().rev().take_while(|byte| is_base64(**byte)).count();
    if is_key(text) || is_in_column || is_header || stretch >= STRETCH_BYTES_MIN {
        KeyBlockLine::Key
    } else {
        KeyBlockLine::Foreign
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)
}

/// Strips quotes and separators around a line.
fn without_quotes(line: &[u8]) -> &[u8] {
    let is_around = |byte: &u8| byte.is_ascii_whitespace() || b"\"',;\\".contains(byte);
    let trimmed = |text: &[u8]| text.len() - text.iter().rev().take_while(|b| is_around(b)).count();
    let start = line.iter().take_while(|byte| is_around(byte)).count();
    let text = &line[start.min(trimmed(line))..trimmed(line)];
    text.strip_suffix(b"\\n").map_or(text, |text| &text[..trimmed(text)])
}
