//! Finds secrets in text and masks them, before the text is stored or shown.
//!
//! The result depends only on the bytes, not on how they are chunked. Text is scanned line by line;
//! a long line is scanned in pieces whose bounds depend only on the line.
//!
//! - `known_values`: values known to be secret, in all encodings.
//! - `rules`: secrets that a pattern describes, as data: the built-in rules and those of the
//!   settings. `detectors`: secrets that need more than a pattern.
//! - `scan`: one pass over some lines. `plan`: the spans to mask. `masked_span`: writes the masked
//!   text.
//! - `stream`: masks chunks as they arrive.

mod detectors;
mod known_values;
mod literal_finder;
mod masked_span;
mod plan;
mod redaction;
mod rules;
mod scan;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

use self::detectors::TriggerFinder;
use self::known_values::KnownValues;
use self::masked_span::MASK;
use self::plan::MaskState;
use self::rules::RuleSearch;

pub use self::detectors::assignment::is_secret_name;
pub use self::known_values::{SPELLING_BYTES_MAX as KNOWN_BYTES_MAX, spellings_of};
pub use self::masked_span::TAIL_SHOWN_FROM_BYTES;
pub use self::plan::LINE_BYTES_MAX;
pub use self::redaction::{RedactionSettings, contains_token, is_literal_secret};
pub use self::rules::{
    AllowlistSource, RegexTarget, RuleError, RuleSource, SecretRule, built_in_rules,
};
pub use self::stream::MaskStream;

/// An error while building a mask.
#[derive(Debug, Error)]
pub enum MaskError {
    /// There are too many or too long secrets or keywords.
    #[error(
        "the secrets cannot be searched for: {0}; pass fewer variables to the agent, or use fewer \
         keywords in redaction.rules"
    )]
    Secrets(#[from] aho_corasick::BuildError),
}

/// Masks secrets. Built once per run and shared by all its output.
#[derive(Clone)]
pub struct SecretMask {
    matchers: Arc<MaskMatchers>,
}

struct MaskMatchers {
    triggers: TriggerFinder,
    known: KnownValues,
    rules: RuleSearch,
}

impl SecretMask {
    /// Masks these values in all encodings, other text that looks secret, and configured patterns.
    pub fn new<'v>(
        values: impl IntoIterator<Item = &'v str>,
        redaction: &RedactionSettings,
    ) -> Result<Self, MaskError> {
        let matchers = MaskMatchers {
            triggers: TriggerFinder::new()?,
            known: KnownValues::new(values)?,
            rules: redaction.search()?,
        };
        Ok(Self { matchers: Arc::new(matchers) })
    }

    /// A masking stream for chunks of bytes.
    pub fn stream(&self) -> MaskStream {
        MaskStream::new(self.clone())
    }

    /// Masks secrets in bytes. Invalid UTF-8 is kept as it is.
    pub fn mask_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        let mut spans = Vec::new();
        plan::plan(&self.matchers, bytes, true, &mut MaskState::default(), &mut spans);
        if spans.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut shown = Vec::with_capacity(bytes.len());
        masked_span::write_masked(bytes, &spans, &mut shown);
        Cow::Owned(shown)
    }

    /// True if the bytes contain a known value.
    pub fn contains_known_value(&self, bytes: &[u8]) -> bool {
        let mut is_there = false;
        self.matchers.known.find_all(bytes, |_, _| is_there = true);
        is_there
    }

    /// Masks secrets in a text.
    pub fn mask_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.mask_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A configured pattern may end within a character.
            Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }),
        }
    }

    /// Masks secrets in JSON: in texts, in field names, and in fields with secret names.
    pub fn mask_json(&self, json: Value) -> Value {
        match json {
            Value::String(text) => Value::String(self.masked(text)),
            Value::Array(items) => items.into_iter().map(|item| self.mask_json(item)).collect(),
            Value::Object(fields) => Value::Object(self.mask_fields(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) => json,
        }
    }

    fn mask_fields(&self, fields: Map<String, Value>) -> Map<String, Value> {
        let masked = |(name, value): (String, Value)| {
            let value = match value {
                Value::String(text) => {
                    Value::String(match detectors::assignment::secret_in(&name, &text) {
                        Some(secret) => masked_span::mask_range(&text, secret),
                        None => self.masked(text),
                    })
                }
                other => self.mask_json(other),
            };
            (self.masked(name), value)
        };
        fields.into_iter().map(masked).collect()
    }

    fn masked(&self, text: String) -> String {
        match self.mask_text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(masked) => masked,
        }
    }
}

impl fmt::Debug for SecretMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests;
