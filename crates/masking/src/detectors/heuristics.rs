//! Rules that tell secrets from words, code and placeholders.

/// Words that occur in place of a value, in code and in documentation.
const PLAIN_WORDS: [&str; 34] = [
    "any",
    "bool",
    "boolean",
    "bytes",
    "char",
    "default",
    "disabled",
    "empty",
    "enabled",
    "false",
    "hidden",
    "integer",
    "invalid",
    "missing",
    "mixed",
    "nil",
    "none",
    "null",
    "number",
    "object",
    "optional",
    "redacted",
    "required",
    "secretstr",
    "static",
    "str",
    "string",
    "true",
    "undefined",
    "unknown",
    "unset",
    "usize",
    "valid",
    "void",
];

/// True for bytes of names and of URL-safe base64.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// The end of the bytes for which `belongs` is true.
pub(crate) fn run_end(line: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    let rest = line.get(from..).unwrap_or_default();
    rest.iter().position(|byte| !belongs(*byte)).map_or(line.len(), |length| from + length)
}

/// The start of the name that contains a position, up to the maximum length of names.
pub(crate) fn name_start(line: &[u8], at: usize) -> usize {
    const NAME_BYTES_MAX: usize = 32;
    let earliest = at.saturating_sub(NAME_BYTES_MAX);
    let before = &line[earliest..at];
    before.iter().rposition(|byte| !is_name_byte(*byte)).map_or(earliest, |end| earliest + end + 1)
}

/// The position after any blanks.
pub(crate) fn skip_blanks(line: &[u8], from: usize) -> usize {
    run_end(line, from, |byte| byte == b' ' || byte == b'\t')
}

/// True if a word starts here, as for `\b` of an expression. An escape or a colour before it may end
/// in a letter.
pub(crate) fn starts_word(line: &[u8], at: usize) -> bool {
    let before = &line[..at];
    before.last().is_none_or(|last| !last.is_ascii_alphanumeric() && *last != b'_')
        || ends_with_escape(before)
        || ends_with_colour(before)
}

/// True after `\n` and the like, `%3D` and the like.
pub(crate) fn ends_with_escape(before: &[u8]) -> bool {
    match before {
        [.., b'\\', letter] => b"ntrbf".contains(letter),
        [.., b'%', first, second] => first.is_ascii_hexdigit() && second.is_ascii_hexdigit(),
        _ => false,
    }
}

/// True after a terminal colour sequence, raw or escaped.
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

/// True for placeholders: a variable, a template field, a mask, dots.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
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

/// True if a value is too long for a word or code. Saves scanning it again for every name in it.
pub(crate) fn is_too_long_for_words(value: &[u8]) -> bool {
    const WORDS_BYTES_MAX: usize = 256;
    value.len() > WORDS_BYTES_MAX
}

/// True for words that occur in place of a value.
pub(crate) fn is_plain_word(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"&").unwrap_or(value);
    PLAIN_WORDS.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(value))
}

/// The composition of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueShape {
    /// Digits only.
    Number,
    /// A word, or names joined by dots and colons.
    Words,
    /// A file path.
    Path,
    /// Anything else.
    Mixed,
}

impl ValueShape {
    pub(crate) fn of(value: &[u8]) -> Self {
        /// The minimum length of a key that starts with a slash.
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

/// True if a line starts here, also within a JSON text with `\n`.
pub(crate) fn begins_line(line: &[u8], at: usize) -> bool {
    let before = line[..at].trim_ascii_end();
    let before = before.strip_suffix(b"-").unwrap_or(before).trim_ascii_end();
    // The `n` of the escape may have been read as the first letter of the name.
    let is_escaped = before.ends_with(b"\\") && line.get(at) == Some(&b'n');
    before.is_empty() || is_escaped || before.ends_with(b"\\n") || before.ends_with(b"\"")
}

/// True if the line ends here, apart from blanks and a comment.
pub(crate) fn ends_line(line: &[u8], at: usize) -> bool {
    let end = skip_blanks(line, at);
    line.get(end).is_none_or(|next| b"\\\"\r".contains(next) || (*next == b'#' && end > at))
}
