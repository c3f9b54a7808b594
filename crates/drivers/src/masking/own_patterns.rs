//! What the settings of a home name: patterns, and addresses of people.

use polity_definition::Redaction;
use regex::bytes::Regex;

use super::MaskError;

/// An address of a person, roughly. Whatever could be one is masked.
const EMAIL: &str = r"(?-u)[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}";

/// What is masked besides secrets.
pub(super) struct OwnPatterns {
    email: Option<Regex>,
    patterns: Vec<Regex>,
}

impl OwnPatterns {
    pub(super) fn new(redaction: &Redaction) -> Result<Self, MaskError> {
        let compiled =
            |text: &str| Regex::new(text).map_err(|error| MaskError::Pattern(error.into()));
        let patterns = redaction.patterns.iter().map(|pattern| compiled(pattern.as_str()));
        let email = redaction.emails.then(|| compiled(EMAIL)).transpose()?;
        Ok(Self { email, patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// Whether a match could begin anywhere, and its end be anywhere on the line.
    pub(super) fn are_unbounded(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Calls `found` with where each match on a line starts and ends.
    pub(super) fn each_in(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
        if let Some(email) = &self.email {
            each_match(
                email,
                text,
                |line_start| memchr::memchr(b'@', &text[line_start..]),
                &mut found,
            );
        }
        for pattern in &self.patterns {
            each_match(pattern, text, |_| Some(0), &mut found);
        }
    }
}

/// Matches the lines one by one. `next` says how far away the next line is that is worth it.
fn each_match(
    pattern: &Regex,
    text: &[u8],
    next: impl Fn(usize) -> Option<usize>,
    found: &mut impl FnMut(usize, usize),
) {
    let mut from = 0;
    while from < text.len() {
        let Some(distance) = next(from) else { return };
        let line = super::scan::line_around(text, from + distance);
        for one in pattern.find_iter(&text[line.clone()]).filter(|one| !one.is_empty()) {
            found(line.start + one.start(), line.start + one.end());
        }
        from = memchr::memchr(b'\n', &text[line.end..]).map_or(text.len(), |at| line.end + at + 1);
    }
}
