//! Values behind names that say what they are: `password=…`, `"token": "…"`, `api_key: …`.

use std::ops::Range;

use super::credentials;
use super::judgement::{
    Makeup, begins_line, ends_line, is_name_byte, is_ordinary_word, is_placeholder,
    is_too_long_for_words, name_start, run_end, skip_blanks,
};
use super::triggers::{Hit, Verdict};

/// Names are no longer than that.
const NAME_BYTES_MAX: usize = 64;

/// How far the end of a text in quotes is searched for.
const QUOTED_BYTES_MAX: usize = 4096;

/// Shorter values without quotes are no secrets.
const VALUE_BYTES_MIN: usize = 4;

/// A word in quotes that is shorter is no token.
const TOKEN_BYTES_MIN: usize = 8;

/// A number that is shorter is no token.
const NUMBER_BYTES_MIN: usize = 16;

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// People think of them: they may be words or numbers.
    Password,
    /// Anything that is not to be told.
    Secret,
    /// Made by a machine, but also what a text is divided into.
    Token,
    /// The folder in which a shell works has the same name.
    PasswordOrFolder,
    /// A header, whose value has parts.
    Authorization,
}

/// The ends of names, without what divides their words.
const KINDS: [(&[u8], Kind); 12] = [
    (b"password", Kind::Password),
    (b"passwd", Kind::Password),
    (b"passphrase", Kind::Password),
    (b"pwd", Kind::PasswordOrFolder),
    (b"secret", Kind::Secret),
    (b"secretkey", Kind::Secret),
    (b"secretaccesskey", Kind::Secret),
    (b"secretkeybase", Kind::Secret),
    (b"apikey", Kind::Secret),
    (b"apikeys", Kind::Secret),
    (b"token", Kind::Token),
    (b"authorization", Kind::Authorization),
];

/// A name and what joins it to its value.
#[derive(Debug, Clone, Copy)]
struct Joint {
    kind: Kind,
    name_start: usize,
    /// Whether the name is in quotes, as in JSON.
    is_quoted: bool,
    mark: Mark,
    /// Where the value begins.
    value: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// `=` without blanks.
    Tight,
    /// `=`, `:=` or `=>` with blanks.
    Loose,
    Colon,
    /// Blanks behind an option of a command line.
    Option,
}

/// Text in quotes.
#[derive(Debug, Clone, Copy)]
struct Quoted {
    start: usize,
    end: usize,
    /// Whether the end was not found, and may follow.
    open: bool,
}

pub(super) fn look(line: &[u8], hit: Hit) -> Verdict {
    match joint(line, hit) {
        Ok(joint) => look_at_value(line, joint),
        Err(verdict) => verdict,
    }
}

/// What is secret in the value of a field with that name.
pub(super) fn secret_in(name: &str, value: &str) -> Option<Range<usize>> {
    let value = value.as_bytes();
    match kind_of(name.as_bytes())? {
        Kind::Authorization => credentials::secret_in(value),
        kind @ (Kind::Password | Kind::PasswordOrFolder | Kind::Secret | Kind::Token) => {
            is_quoted_secret(value, kind).then_some(0..value.len())
        }
    }
}

/// Whether a variable of that name has a secret in it, as far as the name tells.
pub fn is_secret_name(variable: &str) -> bool {
    let is_folder = ["PWD", "OLDPWD"].contains(&variable);
    let is_key = ["_KEY", "_CREDENTIALS"].iter().any(|end| variable.ends_with(end));
    is_key || (!is_folder && kind_of(variable.as_bytes()).is_some())
}

fn kind_of(name: &[u8]) -> Option<Kind> {
    let mut letters = [0; NAME_BYTES_MAX];
    let mut length = 0;
    for byte in name.iter().filter(|byte| !b"_-".contains(byte)) {
        *letters.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    let letters = &letters[..length];
    KINDS.iter().find(|(end, _)| letters.ends_with(end)).map(|(_, kind)| *kind)
}

/// Reads the name around the literal and what follows it, up to the value.
fn joint(line: &[u8], hit: Hit) -> Result<Joint, Verdict> {
    let name_start = name_start(line, hit.start);
    let latest = line.len().min(hit.end + NAME_BYTES_MAX / 2);
    let name_end = run_end(&line[..latest], hit.end, is_name_byte);
    // Whatever the name will be, it is shown.
    let open = Err(Verdict::Open { from: line.len() });
    if name_end == line.len() {
        return open;
    }
    let Some(kind) = kind_of(&line[name_start..name_end]) else { return Err(Verdict::Ordinary) };
    let escapes_end = run_end(line, name_end, is_backslash);
    if escapes_end == line.len() {
        return open;
    }
    let is_quoted = b"\"'".contains(&line[escapes_end]);
    let closed = if is_quoted { escapes_end + 1 } else { name_end };
    let closed = if line.get(closed) == Some(&b']') { closed + 1 } else { closed };
    let at = skip_blanks(line, closed);
    let is_option = line[name_start..].starts_with(b"--");
    let joint = |mark, value| Ok(Joint { kind, name_start, is_quoted, mark, value });
    let (length, mark) = match line.get(at..).unwrap_or_default() {
        [] | [b':' | b'='] => return open,
        [b'=', b'=' | b'~', ..] | [b':', b':', ..] => return Err(Verdict::Ordinary),
        [b':', b'=', ..] | [b'=', b'>', ..] => (2, Mark::Loose),
        [b'=', b' ' | b'\t', ..] => (1, Mark::Loose),
        [b'=', ..] if at > closed => (1, Mark::Loose),
        [b'=', ..] => (1, Mark::Tight),
        [b':', ..] => (1, Mark::Colon),
        _ if is_option && at > closed && !is_quoted => return joint(Mark::Option, at),
        _ => return Err(Verdict::Ordinary),
    };
    joint(mark, skip_blanks(line, at + length))
}

fn is_backslash(byte: u8) -> bool {
    byte == b'\\'
}

fn look_at_value(line: &[u8], joint: Joint) -> Verdict {
    if run_end(line, joint.value, is_backslash) == line.len() {
        return Verdict::Open { from: joint.value };
    }
    let quoted = opening_quote(line, joint.value);
    if joint.kind == Kind::Authorization {
        return credentials::look(line, quoted.map_or(joint.value, |quoted| quoted.start));
    }
    match quoted {
        Some(quoted) => look_at_quoted(line, joint, quoted),
        None => look_at_bare(line, joint),
    }
}

/// The text in quotes that begins here. Letters that some languages put before it are passed.
fn opening_quote(line: &[u8], at: usize) -> Option<Quoted> {
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
            return Some(Quoted { start, end: at - escapes.min(depth), open: false });
        }
    }
    let bare_end = run_end(line, start, is_bare);
    Some(Quoted { start, end: bare_end, open: latest == line.len() })
}

fn look_at_quoted(line: &[u8], joint: Joint, quoted: Quoted) -> Verdict {
    let Quoted { start, end, open } = quoted;
    if is_quoted_secret(&line[start..end], joint.kind) {
        Verdict::Secret { start, end, open }
    } else if open {
        Verdict::Open { from: start }
    } else {
        Verdict::Ordinary
    }
}

fn is_quoted_secret(value: &[u8], kind: Kind) -> bool {
    if is_placeholder(value) || is_ordinary_word(value) {
        return false;
    }
    let has_blanks = value.iter().any(u8::is_ascii_whitespace);
    match kind {
        Kind::Password => true,
        Kind::PasswordOrFolder => Makeup::of(value) != Makeup::Path && !value.starts_with(b"/"),
        Kind::Secret => value.len() >= VALUE_BYTES_MIN,
        Kind::Token | Kind::Authorization if has_blanks => false,
        Kind::Token | Kind::Authorization => match Makeup::of(value) {
            Makeup::Words => value.len() >= TOKEN_BYTES_MIN,
            Makeup::Number | Makeup::Path => value.len() >= NUMBER_BYTES_MIN,
            Makeup::Mixed => value.len() >= VALUE_BYTES_MIN,
        },
    }
}

fn look_at_bare(line: &[u8], joint: Joint) -> Verdict {
    let start = joint.value;
    // In JSON a value without quotes is no text, and in code it is a name.
    if joint.is_quoted {
        return Verdict::Ordinary;
    }
    let end = run_end(line, start, is_bare);
    let value = &line[start..end];
    let open = skip_blanks(line, end) == line.len();
    if is_bare_secret(line, joint, end) {
        return Verdict::Secret { start, end, open };
    }
    if open {
        return Verdict::Open { from: start };
    }
    // `password: str = "…"`
    let next = skip_blanks(line, end);
    if joint.mark == Mark::Colon && is_ordinary_word(value) && line.get(next) == Some(&b'=') {
        let value = skip_blanks(line, next + 1);
        return look_at_value(line, Joint { mark: Mark::Loose, value, ..joint });
    }
    Verdict::Ordinary
}

/// What a value without quotes is made of.
pub(super) fn is_bare(byte: u8) -> bool {
    byte > b' ' && !b"\"'`\\,;&()<>{}[]|".contains(&byte)
}

fn is_bare_secret(line: &[u8], joint: Joint, end: usize) -> bool {
    let value = &line[joint.value..end];
    if is_too_long_for_words(value) {
        return true;
    }
    if value.len() < VALUE_BYTES_MIN || is_placeholder(value) || is_ordinary_word(value) {
        return false;
    }
    let next = line.get(end).copied().unwrap_or(b'\n');
    let is_name = value.iter().all(|byte| is_name_byte(*byte) || b".:".contains(byte));
    if is_name && b"([{<".contains(&next) {
        return false;
    }
    let is_code = is_name && b",;)".contains(&next);
    let is_password = matches!(joint.kind, Kind::Password | Kind::PasswordOrFolder);
    let is_alone = begins_line(line, joint.name_start) && ends_line(line, end);
    match (Makeup::of(value), joint.mark) {
        (Makeup::Path, _) | (Makeup::Number | Makeup::Words, Mark::Option) => false,
        (Makeup::Number, Mark::Tight | Mark::Loose | Mark::Colon) => {
            is_password || value.len() >= NUMBER_BYTES_MIN
        }
        (Makeup::Mixed, Mark::Tight | Mark::Option) => true,
        (Makeup::Mixed, Mark::Loose | Mark::Colon) => {
            let has_digit = value.iter().any(u8::is_ascii_digit);
            (has_digit || is_alone) && (!is_code || value.len() >= NUMBER_BYTES_MIN)
        }
        (Makeup::Words, Mark::Tight) => !is_code && !names_a_secret(value),
        (Makeup::Words, Mark::Loose | Mark::Colon) => {
            let is_word = value.iter().all(|byte| is_name_byte(*byte));
            is_alone && is_word && joint.kind != Kind::Token && !names_a_secret(value)
        }
    }
}

/// Whether a word is a name itself, as in `password=password`.
fn names_a_secret(value: &[u8]) -> bool {
    [&b"pass"[..], b"token", b"secret", b"key"]
        .iter()
        .any(|name| value.windows(name.len()).any(|part| part.eq_ignore_ascii_case(name)))
}
