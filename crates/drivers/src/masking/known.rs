//! Values that are known to be secret, in all spellings in which a program may repeat them.

use aho_corasick::{AhoCorasick, BuildError, Input, MatchKind};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value;

use super::finder::Finder;

/// Values shorter than that, in bytes, are no secrets: they are part of too many other words.
const VALUE_BYTES_MIN: usize = 4;

/// A value that is shorter is not searched for in base64, where it has too few letters.
const ENCODED_BYTES_MIN: usize = 8;

/// A spelling that is longer is searched for in parts.
pub const SPELLING_BYTES_MAX: usize = 4096;

/// So much of a spelling is enough to know where to look for the whole.
const BEGINNING_BYTES: usize = 8;

/// The values.
pub(super) struct Known {
    spellings: Vec<Vec<u8>>,
    search: Option<Search>,
}

struct Search {
    /// Tells quickly where one may begin.
    beginnings: Finder,
    /// Tells all, also those that overlap.
    all: AhoCorasick,
}

impl Known {
    pub(super) fn new<'v>(values: impl IntoIterator<Item = &'v str>) -> Result<Self, BuildError> {
        // Each line by itself, since text is masked line by line.
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut spellings: Vec<Vec<u8>> = lines
            .filter(|line| line.len() >= VALUE_BYTES_MIN)
            .flat_map(spellings_of)
            .flat_map(|spelling| parts_of(&spelling))
            .collect();
        spellings.sort_unstable();
        spellings.dedup();
        if spellings.is_empty() {
            return Ok(Self { spellings, search: None });
        }
        let mut beginnings: Vec<&[u8]> =
            spellings.iter().map(|one| &one[..one.len().min(BEGINNING_BYTES)]).collect();
        beginnings.dedup();
        let beginnings = Finder::new(&beginnings)?;
        let all = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&spellings)?;
        Ok(Self { spellings, search: Some(Search { beginnings, all }) })
    }

    /// Calls `found` with where each value starts and ends.
    pub(super) fn each_in(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
        let Some(Search { beginnings, all }) = &self.search else { return };
        let mut from = 0;
        while let Some(next) = beginnings.next(text, from) {
            // A value has no line break, so that others which overlap are on the same line.
            let line_end =
                memchr::memchr(b'\n', &text[next.end()..]).map_or(text.len(), |at| next.end() + at);
            let line = Input::new(text).range(next.start()..line_end);
            for one in all.find_overlapping_iter(line) {
                found(one.start(), one.end());
            }
            from = line_end;
        }
    }

    /// Where a value begins that has no end yet, if the text ends with one; else the text's end.
    pub(super) fn unfinished_in(&self, text: &[u8]) -> usize {
        let earliest = text.len().saturating_sub(SPELLING_BYTES_MAX);
        let is_beginning =
            |at: &usize| self.spellings.iter().any(|spelling| spelling.starts_with(&text[*at..]));
        (earliest..text.len()).find(is_beginning).unwrap_or(text.len())
    }
}

fn spellings_of(line: &str) -> Vec<Vec<u8>> {
    let in_json = as_in_json(line);
    let twice = as_in_json(&in_json);
    let mut spellings = vec![line.to_owned(), in_json, twice, as_in_address(line)];
    if line.len() >= ENCODED_BYTES_MIN {
        for before in 0..3 {
            spellings.push(as_in_base64(line, before, &STANDARD_NO_PAD));
            spellings.push(as_in_base64(line, before, &URL_SAFE_NO_PAD));
        }
    }
    spellings.into_iter().map(String::into_bytes).collect()
}

/// As within a JSON string.
fn as_in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    let inner = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
    inner.unwrap_or(text).to_owned()
}

/// As within the query of an address.
fn as_in_address(text: &str) -> String {
    let spell = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(spell).collect()
}

/// In base64 behind so many other bytes, without the letters that it shares with its neighbours.
fn as_in_base64(text: &str, before: usize, engine: &impl Engine) -> String {
    let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(text.bytes()).collect();
    let encoded = engine.encode(&bytes);
    let shared_before = [0, 2, 3][before];
    let shared_after = usize::from(!bytes.len().is_multiple_of(3));
    encoded.get(shared_before..encoded.len() - shared_after).unwrap_or_default().to_owned()
}

fn parts_of(spelling: &[u8]) -> Vec<Vec<u8>> {
    // A last part that is too short to be searched for stays with the one before it.
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
