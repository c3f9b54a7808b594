//! What tells a secret from words, code and what stands in for a secret.

/// Words that stand where a value could, in code and in descriptions of it.
const ORDINARY: [&[u8]; 34] = [
    b"any",
    b"bool",
    b"boolean",
    b"bytes",
    b"char",
    b"default",
    b"disabled",
    b"empty",
    b"enabled",
    b"false",
    b"hidden",
    b"integer",
    b"invalid",
    b"missing",
    b"mixed",
    b"nil",
    b"none",
    b"null",
    b"number",
    b"object",
    b"optional",
    b"redacted",
    b"required",
    b"secretstr",
    b"static",
    b"str",
    b"string",
    b"true",
    b"undefined",
    b"unknown",
    b"unset",
    b"usize",
    b"valid",
    b"void",
];

/// Bytes of names and of base64 as it is written in addresses.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Where the bytes end that `belongs` is true for.
pub(super) fn run_end(line: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = line.get(from..).unwrap_or_default();
    rest.iter().position(|byte| !belongs(*byte)).map_or(line.len(), |length| from + length)
}

/// Where the name begins that a place is in, as far as names are long.
pub(super) fn name_start(line: &[u8], at: usize) -> usize {
    const NAME_BYTES_MAX: usize = 32;
    let earliest = at.saturating_sub(NAME_BYTES_MAX);
    let before = &line[earliest..at];
    before.iter().rposition(|byte| !is_name_byte(*byte)).map_or(earliest, |end| earliest + end + 1)
}

/// Where what follows the blanks begins.
pub(super) fn skip_blanks(line: &[u8], from: usize) -> usize {
    run_end(line, from, |byte| byte == b' ' || byte == b'\t')
}

/// Whether a word begins here. What is before it may be escaped or a colour, and end in a letter
/// all the same.
pub(super) fn starts_word(line: &[u8], at: usize) -> bool {
    let before = &line[..at];
    before.last().is_none_or(|last| !is_name_byte(*last))
        || ends_with_escape(before)
        || ends_with_colour(before)
}

/// `\n` and the like, `%3D` and the like.
pub(super) fn ends_with_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', letter] => b"ntrbf".contains(letter),
        [.., b'%', first, second] => first.is_ascii_hexdigit() && second.is_ascii_hexdigit(),
        _ => false,
    }
}

/// What sets a colour in a terminal, as it is or with its first byte escaped.
fn ends_with_colour(before: &[u8]) -> bool {
    let Some(parameters) = before.strip_suffix(b"m") else { return false };
    let is_parameter = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let length = parameters.iter().rev().take_while(|byte| is_parameter(byte)).count();
    let Some(escape) = parameters[..parameters.len() - length].strip_suffix(b"[") else {
        return false;
    };
    [&b"\x1b"[..], b"\\u001b", b"\\u001B", b"\\x1b", b"\\033", b"\\e"]
        .iter()
        .any(|spelling| escape.ends_with(spelling))
}

/// Whether this stands in for a secret: a variable, a hole in a template, a mask, dots.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let is_name =
        |name: &[u8]| name.iter().all(|byte| is_name_byte(*byte) || b".:>".contains(byte));
    match value {
        [] | [b'$', b'{' | b'(', ..] | [b'<', .., b'>'] | [b'{', .., b'}'] | [b'%', .., b'%'] => {
            true
        }
        [b'*', b'*', b'*', ..] | [b'.', b'.', b'.', ..] | [b'%', b'(' | b'{', ..] => true,
        [b'%', _] => true,
        [b'$', name @ ..] => is_name(name),
        [first, ..] => b"xX*.-?_".contains(first) && value.iter().all(|byte| byte == first),
    }
}

/// Whether this is too long to be a word or code. To know that is enough, and saves looking at a
/// long text again from every name within it.
pub(super) fn is_too_long_for_words(value: &[u8]) -> bool {
    const WORDS_BYTES_MAX: usize = 256;
    value.len() > WORDS_BYTES_MAX
}

/// Whether this is a word that stands where a value could.
pub(super) fn is_ordinary_word(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"&").unwrap_or(value);
    ORDINARY.iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// What a value consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Makeup {
    /// Digits alone.
    Number,
    /// A word, or names with dots and colons between them.
    Words,
    /// Where a file is.
    Path,
    /// Anything else.
    Mixed,
}

impl Makeup {
    pub(super) fn of(value: &[u8]) -> Self {
        /// A key that begins with a slash is at least that long.
        const KEY_BYTES_MIN: usize = 40;
        if value.iter().all(|byte| byte.is_ascii_digit() || b"._".contains(byte)) {
            return Self::Number;
        }
        if value.iter().all(|byte| byte.is_ascii_alphabetic() || b"._:&*!?-".contains(byte)) {
            return Self::Words;
        }
        let slashes = memchr::memchr_iter(b'/', value).count();
        let is_rooted = value.first().is_some_and(|first| b"/.~".contains(first));
        if is_rooted && slashes > 1 && value.len() < KEY_BYTES_MIN {
            return Self::Path;
        }
        Self::Mixed
    }
}

/// Whether a line of text begins here, be it within a text of JSON, where lines end with `\n`.
pub(super) fn begins_line(line: &[u8], at: usize) -> bool {
    let before = line[..at].trim_ascii_end();
    let before = before.strip_suffix(b"-").unwrap_or(before).trim_ascii_end();
    // The letter of the escape may have been taken for the first one of the name.
    let is_escaped = before.ends_with(b"\\") && line.get(at) == Some(&b'n');
    before.is_empty() || is_escaped || before.ends_with(b"\\n") || before.ends_with(b"\"")
}

/// Whether a line of text ends here, but for blanks and a comment.
pub(super) fn ends_line(line: &[u8], at: usize) -> bool {
    let end = skip_blanks(line, at);
    line.get(end).is_none_or(|next| b"\\\"\r".contains(next) || (*next == b'#' && end > at))
}
