//! The values of fields, the world and contexts.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

/// A value of an agent's field, of the world or of a context.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalarValue {
    /// A number, always finite.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
}

/// A borrowed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarRef<'a> {
    /// A number.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(&'a Arc<str>),
}

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScalarKind {
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// A text.
    Text,
}

impl ScalarKind {
    /// Returns the kind as a noun phrase for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Bool => "true or false",
            Self::Text => "a text",
        }
    }
}

impl ScalarValue {
    /// Creates a text value.
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    /// Borrows the value.
    #[inline]
    pub fn as_scalar(&self) -> ScalarRef<'_> {
        match self {
            Self::Number(number) => ScalarRef::Number(*number),
            Self::Bool(bool) => ScalarRef::Bool(*bool),
            Self::Text(text) => ScalarRef::Text(text),
        }
    }

    /// Returns the kind of the value.
    pub fn kind(&self) -> ScalarKind {
        self.as_scalar().kind()
    }

    /// Returns the value as JSON. A whole number is written without a fraction.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Number(number) => whole(*number).map_or_else(|| Json::from(*number), Json::from),
            Self::Bool(bool) => Json::from(*bool),
            Self::Text(text) => Json::from(&**text),
        }
    }

    /// Converts a JSON number, string or boolean; returns `None` for anything else.
    pub fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::Number(number) => number.as_f64().filter(|n| n.is_finite()).map(Self::Number),
            Json::Bool(bool) => Some(Self::Bool(*bool)),
            Json::String(text) => Some(Self::text(text)),
            Json::Null | Json::Array(_) | Json::Object(_) => None,
        }
    }
}

/// The greatest whole number below which every whole number is exact as `f64`.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small enough")]
    (number.fract() == 0.0 && number.abs() <= WHOLE_MAX).then_some(number as i64)
}

impl fmt::Display for ScalarValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(bool) => write!(f, "{bool}"),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

impl From<f64> for ScalarValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for ScalarValue {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<&str> for ScalarValue {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl ScalarRef<'_> {
    /// Returns the kind of the value.
    #[inline]
    pub fn kind(self) -> ScalarKind {
        match self {
            Self::Number(_) => ScalarKind::Number,
            Self::Bool(_) => ScalarKind::Bool,
            Self::Text(_) => ScalarKind::Text,
        }
    }

    /// Returns the number, if it is one.
    #[inline]
    pub fn as_number(self) -> Option<f64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// Returns an owned value.
    pub fn to_value(self) -> ScalarValue {
        match self {
            Self::Number(number) => ScalarValue::Number(number),
            Self::Bool(bool) => ScalarValue::Bool(bool),
            Self::Text(text) => ScalarValue::Text(Arc::clone(text)),
        }
    }
}
