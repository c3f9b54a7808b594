//! The values that guards compare and actions set.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

/// A value of an agent's field, of the world or of a context.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number, always finite.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(Arc<str>),
}

/// A value that is looked at where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    /// A number.
    Number(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(&'a Arc<str>),
}

/// What kind of value something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// A text.
    Text,
}

impl Kind {
    /// The kind in words, for messages.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Bool => "true or false",
            Self::Text => "a text",
        }
    }
}

impl Value {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    /// The value without a copy.
    #[inline]
    pub fn as_scalar(&self) -> Scalar<'_> {
        match self {
            Self::Number(number) => Scalar::Number(*number),
            Self::Bool(bool) => Scalar::Bool(*bool),
            Self::Text(text) => Scalar::Text(text),
        }
    }

    /// What kind of value it is.
    pub fn kind(&self) -> Kind {
        self.as_scalar().kind()
    }

    /// The value as JSON. A whole number is written without a fraction.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Number(number) => whole(*number).map_or_else(|| Json::from(*number), Json::from),
            Self::Bool(bool) => Json::from(*bool),
            Self::Text(text) => Json::from(&**text),
        }
    }

    /// A number, a text, true or false from JSON; nothing for anything else.
    pub fn from_json(json: &Json) -> Option<Self> {
        match json {
            Json::Number(number) => number.as_f64().filter(|n| n.is_finite()).map(Self::Number),
            Json::Bool(bool) => Some(Self::Bool(*bool)),
            Json::String(text) => Some(Self::text(text)),
            Json::Null | Json::Array(_) | Json::Object(_) => None,
        }
    }
}

/// Beyond this not every whole number is a floating-point number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small enough")]
    (number.fract() == 0.0 && number.abs() <= WHOLE_MAX).then_some(number as i64)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bool(bool) => write!(f, "{bool}"),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl Scalar<'_> {
    /// What kind of value it is.
    #[inline]
    pub fn kind(self) -> Kind {
        match self {
            Self::Number(_) => Kind::Number,
            Self::Bool(_) => Kind::Bool,
            Self::Text(_) => Kind::Text,
        }
    }

    /// A value of its own.
    pub fn to_value(self) -> Value {
        match self {
            Self::Number(number) => Value::Number(number),
            Self::Bool(bool) => Value::Bool(bool),
            Self::Text(text) => Value::Text(Arc::clone(text)),
        }
    }
}
