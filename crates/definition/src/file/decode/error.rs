//! Decoding errors with structured reasons and paths.

use std::fmt;

use serde::de;

use crate::file::path::{FieldPath, PathSegment};

/// A decoding error and the path to its value.
#[derive(Debug)]
pub(crate) struct DecodeError {
    /// The path to the value, innermost segment first: segments are added while the error
    /// propagates.
    reversed_path: Vec<PathSegment>,
    /// True if the key is wrong rather than its value.
    pub(crate) at_key: bool,
    pub(crate) fault: DecodeFault,
}

/// The kinds of decoding errors.
#[derive(Debug)]
pub(crate) enum DecodeFault {
    UnknownField {
        name: String,
        allowed: &'static [&'static str],
        /// The tag field of the mapping, if it has one.
        tag: Option<&'static str>,
    },
    UnknownValue {
        found: String,
        allowed: &'static [&'static str],
    },
    /// The tag field is missing.
    MissingTag {
        tag: &'static str,
        allowed: &'static [&'static str],
    },
    MissingField(&'static str),
    WrongType {
        expected: String,
    },
    /// The value violates a rule of its type, described by the text.
    Rule(String),
    /// The value cannot be read only because something inside it is wrong, which is known.
    Consequence,
}

impl DecodeError {
    pub(crate) fn new(fault: DecodeFault) -> Self {
        Self { reversed_path: Vec::new(), at_key: false, fault }
    }

    pub(crate) fn under(mut self, segment: PathSegment) -> Self {
        self.reversed_path.push(segment);
        self
    }

    pub(crate) fn at_key(mut self) -> Self {
        self.at_key = true;
        self
    }

    /// Adds the tag to the allowed fields.
    pub(crate) fn in_tagged(mut self, by: Option<&'static str>) -> Self {
        if let DecodeFault::UnknownField { tag, .. } = &mut self.fault {
            *tag = by;
        }
        self
    }

    pub(crate) fn path(&self) -> FieldPath {
        FieldPath(self.reversed_path.iter().rev().cloned().collect())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path(), self.fault)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(DecodeFault::Rule(message.to_string()))
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(DecodeFault::WrongType { expected: expected.to_string() })
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(DecodeFault::WrongType { expected: expected.to_string() })
    }

    fn invalid_length(_: usize, expected: &dyn de::Expected) -> Self {
        Self::new(DecodeFault::WrongType { expected: expected.to_string() })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(DecodeFault::UnknownValue { found: variant.to_owned(), allowed: expected })
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(DecodeFault::UnknownField {
            name: field.to_owned(),
            allowed: expected,
            tag: None,
        })
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(DecodeFault::MissingField(field))
    }
}

/// The expected type, in the words of definition files.
pub(crate) fn in_words(expected: &str) -> String {
    match expected {
        "a string" | "a borrowed string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number, 0 or above".to_owned(),
        "i64" => "a whole number".to_owned(),
        "a nonzero u16" => "a whole number from 1 to 65535".to_owned(),
        "a nonzero u32" => format!("a whole number from 1 to {}", u32::MAX),
        "a nonzero u64" | "a nonzero usize" => "a whole number above 0".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        other if other.starts_with("struct ") => "a mapping".to_owned(),
        other => other.to_owned(),
    }
}
