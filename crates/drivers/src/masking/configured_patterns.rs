//! Patterns of the settings, and email addresses.

use polity_definition::RedactionSettings;
use regex::bytes::Regex;

use super::MaskError;

/// An email address, roughly; it matches rather too much than too little.
const EMAIL: &str = r"(?-u)[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}";

pub(super) struct ConfiguredPatterns {
    email: Option<Regex>,
    patterns: Vec<Regex>,
}

impl ConfiguredPatterns {
    pub(super) fn new(redaction: &RedactionSettings) -> Result<Self, MaskError> {
        let compiled =
            |text: &str| Regex::new(text).map_err(|error| MaskError::Pattern(error.into()));
        let patterns = redaction.patterns.iter().map(|pattern| compiled(pattern.as_str()));
        let email = redaction.emails.then(|| compiled(EMAIL)).transpose()?;
        Ok(Self { email, patterns: patterns.collect::<Result<_, _>>()? })
    }

    /// True if a match may start and end anywhere on a line.
    pub(super) fn are_unbounded(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Calls `found` with the start and end of each match.
    pub(super) fn find_all(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
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

/// Matches line by line. `next` returns the distance to the next line worth matching.
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
