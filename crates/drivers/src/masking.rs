//! What is secret is masked in whatever a supervised program says, before anyone sees it.
//!
//! The result is a function of the bytes alone, however they arrive: text is judged line by line,
//! and a line that is too long in pieces whose bounds depend on nothing but the line. `triggers`
//! finds the few places that are worth a look, the modules named there look closely, `plan` says
//! which bytes are hidden, and `hidden` writes the rest.

mod address;
mod assignment;
mod credentials;
mod finder;
mod hidden;
mod judgement;
mod key_block;
mod known;
mod own_patterns;
mod plan;
mod scan;
mod stream;
mod token;
mod triggers;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use polity_definition::Redaction;
use serde_json::{Map, Value};
use thiserror::Error;

use self::hidden::MASK;
use self::known::Known;
use self::own_patterns::OwnPatterns;
use self::plan::State;
use self::triggers::Triggers;

pub use self::assignment::is_secret_name;
pub use self::hidden::TAIL_SHOWN_FROM_BYTES;
pub use self::known::SPELLING_BYTES_MAX as KNOWN_BYTES_MAX;
pub use self::plan::LINE_BYTES_MAX;
pub use self::stream::Stream;

/// Why a mask could not be made.
#[derive(Debug, Error)]
pub enum MaskError {
    /// A pattern of the settings is too large for what it is searched with.
    #[error("redaction.patterns: {0}; make the pattern simpler")]
    Pattern(#[source] Box<regex::Error>),
    /// There are more or longer secrets than can be searched for.
    #[error("the secrets cannot be searched for: {0}; pass fewer variables to the agent")]
    Secrets(#[from] aho_corasick::BuildError),
}

/// Knows what is secret. Made once for a run and shared by all who show something of it.
#[derive(Clone)]
pub struct Mask {
    parts: Arc<Parts>,
}

struct Parts {
    triggers: Triggers,
    known: Known,
    own: OwnPatterns,
}

impl Mask {
    /// Masks these values in all their spellings, what looks like a secret by itself, and what the
    /// settings name.
    pub fn new<'v>(
        values: impl IntoIterator<Item = &'v str>,
        redaction: &Redaction,
    ) -> Result<Self, MaskError> {
        let parts = Parts {
            triggers: Triggers::new()?,
            known: Known::new(values)?,
            own: OwnPatterns::new(redaction)?,
        };
        Ok(Self { parts: Arc::new(parts) })
    }

    /// A stream of bytes that arrive one after the other.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// The bytes without the secrets. Those that are no text are left as they are.
    pub fn mask_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        let mut hidden = Vec::new();
        plan::plan(&self.parts, bytes, true, &mut State::default(), &mut hidden);
        if hidden.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut shown = Vec::with_capacity(bytes.len());
        hidden::write_rest(bytes, &hidden, &mut shown);
        Cow::Owned(shown)
    }

    /// Whether a value that is known to be secret is in there, whatever the rest is.
    pub fn knows_of(&self, bytes: &[u8]) -> bool {
        let mut is_there = false;
        self.parts.known.each_in(bytes, |_, _| is_there = true);
        is_there
    }

    /// The text without the secrets.
    pub fn mask_text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.mask_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A pattern of the settings may end within a character.
            Cow::Owned(bytes) => Cow::Owned(match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
            }),
        }
    }

    /// The JSON without the secrets: in texts, in names of fields, and in fields whose names say
    /// that a secret is in them.
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
                Value::String(text) => Value::String(match assignment::secret_in(&name, &text) {
                    Some(secret) => hidden::without(&text, secret),
                    None => self.masked(text),
                }),
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

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests;
