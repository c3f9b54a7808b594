//! Values after names that announce a secret: `password=…`, `"token": "…"`, `api_key: …`.

use std::ops::Range;

use super::authorization;
use super::heuristics::{
    ValueShape, begins_line, ends_line, is_name_byte, is_placeholder, is_plain_word,
    is_too_long_for_words, name_start, run_end, skip_blanks,
};
use super::{TriggerSpan, TriggerVerdict};

const NAME_BYTES_MAX: usize = 64;

/// The maximum distance to a closing quote.
const QUOTED_BYTES_MAX: usize = 4096;

/// The minimum length of an unquoted value.
const VALUE_BYTES_MIN: usize = 4;

/// The minimum length of a quoted token that is a word.
const TOKEN_BYTES_MIN: usize = 8;

/// The minimum length of a token that is a number.
const NUMBER_BYTES_MIN: usize = 16;

/// The kind of secret that a name announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// Chosen by people: may be words or numbers.
    Password,
    /// Any secret.
    Secret,
    /// Generated; but "token" also means a part of a text.
    Token,
    /// `PWD` is also the working directory of a shell.
    PasswordOrDirectory,
    /// A header with a scheme and credentials.
    Authorization,
}

/// The ends of names, without separators.
const KINDS: [(&[u8], NameKind); 12] = [
    (b"password", NameKind::Password),
    (b"passwd", NameKind::Password),
    (b"passphrase", NameKind::Password),
    (b"pwd", NameKind::PasswordOrDirectory),
    (b"secret", NameKind::Secret),
    (b"secretkey", NameKind::Secret),
    (b"secretaccesskey", NameKind::Secret),
    (b"secretkeybase", NameKind::Secret),
    (b"apikey", NameKind::Secret),
    (b"apikeys", NameKind::Secret),
    (b"token", NameKind::Token),
    (b"authorization", NameKind::Authorization),
];

/// A name and the position of its value.
#[derive(Debug, Clone, Copy)]
struct NamedValue {
    kind: NameKind,
    name_start: usize,
    /// True if the name is quoted, as in JSON.
    is_quoted: bool,
    mark: ValueMark,
    value: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueMark {
    /// `=` without blanks.
    Tight,
    /// `=`, `:=` or `=>` with blanks.
    Loose,
    Colon,
    /// Blanks after a command-line option.
    Option,
}

#[derive(Debug, Clone, Copy)]
struct QuotedText {
    start: usize,
    end: usize,
    /// True if the closing quote was not found and may follow.
    open: bool,
}

pub(crate) fn detect(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    match parse_name(line, trigger) {
        Ok(named) => check_value(line, named),
        Err(verdict) => verdict,
    }
}

/// The secret part of a field's value.
pub(crate) fn secret_in(name: &str, value: &str) -> Option<Range<usize>> {
    let value = value.as_bytes();
    let kind = kind_of(name.as_bytes())?;
    if kind == NameKind::Authorization {
        return authorization::secret_in(value);
    }
    is_quoted_secret(value, kind).then_some(0..value.len())
}

/// True if the name of a variable announces a secret.
pub fn is_secret_name(variable: &str) -> bool {
    let is_folder = ["PWD", "OLDPWD"].contains(&variable);
    let is_key = ["_KEY", "_CREDENTIALS"].iter().any(|end| variable.ends_with(end));
    is_key || (!is_folder && kind_of(variable.as_bytes()).is_some())
}

/// True if a variable of this name with this value is a secret. Words and paths after names of keys
/// and tokens are not: they name a key, or stand for none.
pub(crate) fn is_secret_value(variable: &str, value: &str) -> bool {
    const WORDS_BYTES_MAX: usize = 24;
    let value = value.as_bytes();
    if !is_secret_name(variable) || is_plain_word(value) {
        return false;
    }
    match kind_of(variable.as_bytes()) {
        Some(kind @ (NameKind::Password | NameKind::PasswordOrDirectory)) => {
            is_quoted_secret(value, kind)
        }
        Some(NameKind::Secret | NameKind::Token | NameKind::Authorization) | None => {
            let is_path = value.first().is_some_and(|first| b"/.~".contains(first));
            let is_word = match ValueShape::of(value) {
                ValueShape::Words => value.len() <= WORDS_BYTES_MAX,
                ValueShape::Path => true,
                ValueShape::Number => value.len() < NUMBER_BYTES_MIN,
                ValueShape::Mixed => value.len() < TOKEN_BYTES_MIN || is_path,
            };
            !is_word && !is_placeholder(value)
        }
    }
}

fn kind_of(name: &[u8]) -> Option<NameKind> {
    let mut letters = [0; NAME_BYTES_MAX];
    let mut length = 0;
    for byte in name.iter().filter(|byte| !b"_-".contains(byte)) {
        *letters.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    let letters = &letters[..length];
    KINDS.iter().find(|(end, _)| letters.ends_with(end)).map(|(_, kind)| *kind)
}

/// Parses the name around the literal and the separator after it.
fn parse_name(line: &[u8], trigger: TriggerSpan) -> Result<NamedValue, TriggerVerdict> {
    let name_start = name_start(line, trigger.start);
    let latest = line.len().min(trigger.end + NAME_BYTES_MAX / 2);
    let name_end = run_end(&line[..latest], trigger.end, is_name_byte);
    // The name itself is always shown.
    let open = Err(TriggerVerdict::Undecided { from: line.len() });
    if name_end == line.len() {
        return open;
    }
    let Some(kind) = kind_of(&line[name_start..name_end]) else {
        return Err(TriggerVerdict::NotSecret);
    };
    let escapes_end = run_end(line, name_end, is_backslash);
    if escapes_end == line.len() {
        return open;
    }
    let is_quoted = b"\"'".contains(&line[escapes_end]);
    let closed = if is_quoted { escapes_end + 1 } else { name_end };
    let closed = if line.get(closed) == Some(&b']') { closed + 1 } else { closed };
    let at = skip_blanks(line, closed);
    let is_option = line[name_start..].starts_with(b"--");
    let named = |mark, value| Ok(NamedValue { kind, name_start, is_quoted, mark, value });
    let (length, mark) = match line.get(at..).unwrap_or_default() {
        [] | [b':' | b'='] => return open,
        [b'=', b'=' | b'~', ..] | [b':', b':', ..] => return Err(TriggerVerdict::NotSecret),
        [b':', b'=', ..] | [b'=', b'>', ..] => (2, ValueMark::Loose),
        [b'=', b' ' | b'\t', ..] => (1, ValueMark::Loose),
        [b'=', ..] if at > closed => (1, ValueMark::Loose),
        [b'=', ..] => (1, ValueMark::Tight),
        [b':', ..] => (1, ValueMark::Colon),
        _ if is_option && at > closed && !is_quoted => {
            return named(ValueMark::Option, at);
        }
        _ => return Err(TriggerVerdict::NotSecret),
    };
    named(mark, skip_blanks(line, at + length))
}

fn is_backslash(byte: u8) -> bool {
    byte == b'\\'
}

fn check_value(line: &[u8], named: NamedValue) -> TriggerVerdict {
    if run_end(line, named.value, is_backslash) == line.len() {
        return TriggerVerdict::Undecided { from: named.value };
    }
    let quoted = opening_quote(line, named.value);
    if named.kind == NameKind::Authorization {
        return authorization::detect(line, quoted.map_or(named.value, |quoted| quoted.start));
    }
    match quoted {
        Some(quoted) => check_quoted(line, named, quoted),
        None => check_bare(line, named),
    }
}

/// The quoted text that starts here. String prefixes such as `b"` are skipped.
fn opening_quote(line: &[u8], at: usize) -> Option<QuotedText> {
    let marked = match line.get(at..)? {
        [b'b' | b'f' | b'r' | b'u', b'"' | b'\'', ..] => at + 1,
        _ => at,
    };
    let quote_at = run_end(line, marked, is_backslash);
    let quote = *line.get(quote_at).filter(|byte| b"\"'`".contains(byte))?;
    let start = quote_at + 1;
    let latest = line.len().min(start + QUOTED_BYTES_MAX);
    let depth = quote_at - marked;
    for at in memchr::memchr_iter(quote, &line[start..latest]).map(|at| start + at) {
        let escapes = line[start..at].iter().rev().take_while(|byte| **byte == b'\\').count();
        let is_end = if depth == 0 { escapes % 2 == 0 } else { escapes <= depth };
        if is_end {
            return Some(QuotedText { start, end: at - escapes.min(depth), open: false });
        }
    }
    let bare_end = run_end(line, start, is_bare);
    Some(QuotedText { start, end: bare_end, open: latest == line.len() })
}

fn check_quoted(line: &[u8], named: NamedValue, quoted: QuotedText) -> TriggerVerdict {
    let QuotedText { start, end, open } = quoted;
    let is_secret = is_quoted_secret(&line[start..end], named.kind);
    TriggerVerdict::of_value(is_secret, start..end, open)
}

fn is_quoted_secret(value: &[u8], kind: NameKind) -> bool {
    if is_placeholder(value) || is_plain_word(value) {
        return false;
    }
    let has_blanks = value.iter().any(u8::is_ascii_whitespace);
    match kind {
        NameKind::Password => true,
        NameKind::PasswordOrDirectory => {
            ValueShape::of(value) != ValueShape::Path && !value.starts_with(b"/")
        }
        NameKind::Secret => value.len() >= VALUE_BYTES_MIN,
        NameKind::Token | NameKind::Authorization if has_blanks => false,
        NameKind::Token | NameKind::Authorization => match ValueShape::of(value) {
            ValueShape::Words => value.len() >= TOKEN_BYTES_MIN,
            ValueShape::Number | ValueShape::Path => value.len() >= NUMBER_BYTES_MIN,
            ValueShape::Mixed => value.len() >= VALUE_BYTES_MIN,
        },
    }
}

fn check_bare(line: &[u8], named: NamedValue) -> TriggerVerdict {
    let start = named.value;
    // In JSON an unquoted value is not a text, and in code it is a name.
    if named.is_quoted {
        return TriggerVerdict::NotSecret;
    }
    let end = run_end(line, start, is_bare);
    let value = &line[start..end];
    let open = skip_blanks(line, end) == line.len();
    if is_bare_secret(line, named, end) {
        return TriggerVerdict::Secret { start, end, open };
    }
    if open {
        return TriggerVerdict::Undecided { from: start };
    }
    // `password: str = "…"`
    let next = skip_blanks(line, end);
    if named.mark == ValueMark::Colon && is_plain_word(value) && line.get(next) == Some(&b'=') {
        let value = skip_blanks(line, next + 1);
        return check_value(line, NamedValue { mark: ValueMark::Loose, value, ..named });
    }
    TriggerVerdict::NotSecret
}

/// True if the byte may be part of an unquoted value.
pub(crate) fn is_bare(byte: u8) -> bool {
    byte > b' ' && !b"\"'`\\,;&()<>{}[]|".contains(&byte)
}

fn is_bare_secret(line: &[u8], named: NamedValue, end: usize) -> bool {
    let value = &line[named.value..end];
    if is_too_long_for_words(value) {
        return true;
    }
    if value.len() < VALUE_BYTES_MIN || is_placeholder(value) || is_plain_word(value) {
        return false;
    }
    let next = line.get(end).copied().unwrap_or(b'\n');
    let is_name = value.iter().all(|byte| is_name_byte(*byte) || b".:".contains(byte));
    if is_name && b"([{<".contains(&next) {
        return false;
    }
    let is_code = is_name && b",;)".contains(&next);
    let is_password = matches!(named.kind, NameKind::Password | NameKind::PasswordOrDirectory);
    let is_alone = begins_line(line, named.name_start) && ends_line(line, end);
    match (ValueShape::of(value), named.mark) {
        (ValueShape::Path, _) | (ValueShape::Number | ValueShape::Words, ValueMark::Option) => {
            false
        }
        (ValueShape::Number, ValueMark::Tight | ValueMark::Loose | ValueMark::Colon) => {
            is_password || value.len() >= NUMBER_BYTES_MIN
        }
        (ValueShape::Mixed, ValueMark::Tight | ValueMark::Option) => true,
        (ValueShape::Mixed, ValueMark::Loose | ValueMark::Colon) => {
            let has_digit = value.iter().any(u8::is_ascii_digit);
            (has_digit || is_alone) && (!is_code || value.len() >= NUMBER_BYTES_MIN)
        }
        (ValueShape::Words, ValueMark::Tight) => !is_code && !names_a_secret(value),
        (ValueShape::Words, ValueMark::Loose | ValueMark::Colon) => {
            let is_word = value.iter().all(|byte| is_name_byte(*byte));
            is_alone && is_word && named.kind != NameKind::Token && !names_a_secret(value)
        }
    }
}

/// True if a value is itself a name, as in `password=password`.
fn names_a_secret(value: &[u8]) -> bool {
    [&b"pass"[..], b"token", b"secret", b"key"]
        .iter()
        .any(|name| value.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name)))
}
