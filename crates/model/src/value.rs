//! Small validated values, their error, and the macros that declare their types.

pub mod budget;
pub mod digest;
pub mod failure;
pub mod ids;
pub mod name;
pub mod number;
pub mod tool;
pub mod usage;

use std::borrow::Cow;

use serde_json::Value;

/// The longest piece of a value that a message repeats, in characters.
const EXCERPT_CHARACTERS_MAX: usize = 60;

/// A value that its field does not allow; the message says what it allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

impl InvalidValue {
    /// An error with this message.
    pub fn new(message: String) -> Self {
        Self(message)
    }
}

/// Returns the beginning of a text, on one line.
pub fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.replace('\n', "\\n")
}

/// Returns a JSON value as text: a text as it is, any other value as JSON.
pub fn json_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => Cow::Owned(other.to_string()),
    }
}

/// Implements the conversions of a text type, given `as_str` and `FromStr`.
#[doc(hidden)]
#[macro_export]
macro_rules! text_form {
    ($name:ident, $schema:tt) => {
        impl TryFrom<String> for $name {
            type Error = <Self as std::str::FromStr>::Err;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        $crate::inline_schema!($name, $schema);
    };
}

/// Implements [`JsonSchema`](schemars::JsonSchema) with a schema that is repeated at each use.
#[doc(hidden)]
#[macro_export]
macro_rules! inline_schema {
    ($name:ident, $schema:tt) => {
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// Declares an enum whose variants have a label: their name in files, JSON and messages.
macro_rules! labelled_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $label:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The name as files and JSON have it.
            pub fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.label())
            }
        }
    };
}
pub(crate) use labelled_enum;

/// Declares a checked text: a newtype over `Arc<str>`, its check and the form of its JSON Schema.
#[doc(hidden)]
#[macro_export]
macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:path, $schema:tt) => {
        $(#[$doc])*
        #[derive(
            Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::value::InvalidValue;

            fn from_str(text: &str) -> Result<Self, $crate::value::InvalidValue> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(message) => Err($crate::value::InvalidValue::new(message)),
                }
            }
        }

        $crate::text_form!($name, $schema);
    };
}
