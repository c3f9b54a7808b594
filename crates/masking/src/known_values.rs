//! Known secret values, in all encodings in which a process may print them.

use std::fmt::Write;

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::literal_finder::LiteralFinder;

/// The minimum length of a value, in bytes. Shorter ones occur in too many words.
const VALUE_BYTES_MIN: usize = 4;

/// The minimum length of a value that is searched for in hexadecimal, base64 and base32.
const ENCODED_BYTES_MIN: usize = 8;

/// The maximum length of a spelling; longer ones are searched for in parts.
pub const SPELLING_BYTES_MAX: usize = 4096;

/// The length of the prefix that is searched for first.
const PREFIX_BYTES: usize = 8;

pub(super) struct KnownValues {
    spellings: Vec<Vec<u8>>,
    search: Option<ValueSearch>,
}

struct ValueSearch {
    /// Finds the prefixes, fast.
    prefixes: LiteralFinder,
    /// Finds all values, including overlapping ones.
    all: AhoCorasick,
}

impl KnownValues {
    pub(super) fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Result<Self, BuildError> {
        // Line by line, because text is masked line by line.
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut spellings: Vec<Vec<u8>> = lines
            .filter(|line| line.len() >= VALUE_BYTES_MIN)
            .flat_map(spellings_of)
            .flat_map(|spelling| parts_of(spelling.as_bytes()))
            .collect();
        spellings.sort_unstable();
        spellings.dedup();
        if spellings.is_empty() {
            return Ok(Self { spellings, search: None });
        }
        let mut prefixes: Vec<&[u8]> =
            spellings.iter().map(|one| &one[..one.len().min(PREFIX_BYTES)]).collect();
        prefixes.dedup();
        let prefixes = LiteralFinder::new(&prefixes)?;
        let all = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&spellings)?;
        Ok(Self { spellings, search: Some(ValueSearch { prefixes, all }) })
    }

    /// Calls `found` with the start and end of each value.
    pub(super) fn find_all(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
        let Some(ValueSearch { prefixes, all }) = &self.search else { return };
        let mut from = 0;
        while let Some(next) = prefixes.next(text, from) {
            // Values contain no line breaks, so overlapping ones are on the same line.
            let line_end =
                memchr::memchr(b'\n', &text[next.end()..]).map_or(text.len(), |at| next.end() + at);
            let line = Input::new(text).range(next.start()..line_end);
            for one in all.find_overlapping_iter(line) {
                found(one.start(), one.end());
            }
            from = line_end;
        }
    }

    /// The start of an incomplete value at the end of the text; else the text's end.
    pub(super) fn incomplete_start(&self, text: &[u8]) -> usize {
        let earliest = text.len().saturating_sub(SPELLING_BYTES_MAX);
        let is_beginning =
            |at: &usize| self.spellings.iter().any(|spelling| spelling.starts_with(&text[*at..]));
        (earliest..text.len()).find(is_beginning).unwrap_or(text.len())
    }
}

/// All spellings of a value of one line: as it is, escaped in JSON once and twice, in HTML, in URLs,
/// in forms, in hexadecimal, in base64 and in base32.
pub fn spellings_of(line: &str) -> Vec<String> {
    let in_json = escape_json(line);
    let twice = escape_json(&in_json);
    let ascii = escape_non_ascii(&in_json);
    let mut spellings = vec![line.to_owned(), in_json, twice, ascii];
    spellings.extend(html_escaped(line));
    spellings.extend(url_encoded(line));
    if line.len() >= ENCODED_BYTES_MIN {
        // As one number, as dumps and fingerprints show it, in string literals and in URLs.
        for (before, between) in [("", ""), ("", ":"), ("", " "), ("\\x", ""), ("%", "")] {
            let upper = line.bytes().map(|byte| format!("{before}{byte:02X}"));
            let lower = line.bytes().map(|byte| format!("{before}{byte:02x}"));
            spellings.push(upper.collect::<Vec<_>>().join(between));
            spellings.push(lower.collect::<Vec<_>>().join(between));
        }
        for before in 0..3 {
            spellings.push(base64_at_offset(line, before, &STANDARD_NO_PAD));
            spellings.push(base64_at_offset(line, before, &URL_SAFE_NO_PAD));
        }
        for before in 0..5 {
            let encoded = base32_at_offset(line, before);
            spellings.push(encoded.to_ascii_lowercase());
            spellings.push(encoded);
        }
    }
    spellings.sort_unstable();
    spellings.dedup();
    spellings
}

/// The text as escaped in a JSON string; many programs log JSON.
fn escape_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
    inner.unwrap_or(text).to_owned()
}

/// The text of a JSON string with everything but ASCII as escapes, as many encoders write it.
fn escape_non_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

/// Escapes a value for HTML. Encoders differ in the escapes of quotes.
fn html_escaped(text: &str) -> Vec<String> {
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let quoted = escaped.replace('"', "&quot;");
    ["&#39;", "&#x27;", "&apos;"]
        .iter()
        .map(|apostrophe| quoted.replace('\'', apostrophe))
        .chain([escaped.clone(), quoted.clone()])
        .collect()
}

/// Escapes a value for URLs and forms. Encoders differ in the characters that they leave as they
/// are, and in the case of digits.
fn url_encoded(text: &str) -> Vec<String> {
    /// RFC 3986, `encodeURIComponent`, path segments, `encodeURI`, and forms.
    const UNESCAPED: [&[u8]; 5] =
        [b"-._~", b"-._~!'()*", b"-._~/", b"-._~!'()*;,/?:@&=+$#", b"-._*"];
    let encoded = |unescaped: &[u8], is_lower: bool, is_form: bool| {
        let spell = |byte: u8| match byte {
            b' ' if is_form => "+".to_owned(),
            _ if byte.is_ascii_alphanumeric() || unescaped.contains(&byte) => {
                char::from(byte).to_string()
            }
            _ if is_lower => format!("%{byte:02x}"),
            _ => format!("%{byte:02X}"),
        };
        text.bytes().map(spell).collect::<String>()
    };
    let cases = UNESCAPED.iter().flat_map(|set| [(set, false), (set, true)]);
    cases
        .flat_map(|(set, is_lower)| [encoded(set, is_lower, false), encoded(set, is_lower, true)])
        .collect()
}

/// Encodes a value in base64 at an offset, without the letters that it shares with adjacent bytes.
fn base64_at_offset(text: &str, before: usize, engine: &impl Engine) -> String {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(text.bytes()).collect();
    let encoded = engine.encode(&bytes);
    let shared_before = [0, 2, 3][before];
    let shared_after = usize::from(!bytes.len().is_multiple_of(3));
    encoded.get(shared_before..encoded.len() - shared_after).unwrap_or_default().to_owned()
}

/// Encodes a value in base32 at an offset, without the letters that it shares with adjacent bytes.
fn base32_at_offset(text: &str, before: usize) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(text.bytes()).collect();
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    // Only letters whose five bits are all in the value.
    let letters = (before * 8).div_ceil(5)..bytes.len() * 8 / 5;
    let letter = |index: usize| (0..5).fold(0, |letter, at| letter << 1 | bit(index * 5 + at));
    letters.map(|index| char::from(LETTERS[usize::from(letter(index))])).collect()
}

fn parts_of(spelling: &[u8]) -> Vec<Vec<u8>> {
    // A part that is too short stays with the previous one.
    let mut parts: Vec<Vec<u8>> =
        spelling.chunks(SPELLING_BYTES_MAX - VALUE_BYTES_MIN).map(<[u8]>::to_vec).collect();
    if parts.last().is_some_and(|last| last.len() < VALUE_BYTES_MIN)
        && let Some(last) = parts.pop()
        && let Some(before) = parts.last_mut()
    {
        before.extend(last);
    }
    parts
}
