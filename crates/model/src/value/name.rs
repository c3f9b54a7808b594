//! Names of definitions. Agents and workflows share one namespace, so they share one type.

use std::borrow::Borrow;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text_form;

/// The form every name has, as it is shown to people and written in schemas.
pub const NAME_PATTERN: &str = "^[a-z][a-z0-9_]*$";

/// The longest name, in characters: names become file names.
pub const NAME_CHARACTERS_MAX: usize = 100;

/// The name of an agent, workflow, schedule or other definition; always matches [`NAME_PATTERN`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A text that may not be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{found}\" is not a valid name: a name starts with a lower-case letter and holds only \
     lower-case letters, digits and underscores ({NAME_PATTERN}), {NAME_CHARACTERS_MAX} characters at most"
)]
pub struct InvalidName {
    found: String,
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the agent that runs a script: `script_` and a label of the script, in which
    /// underscores replace the characters that no name has.
    pub fn of_script(label: &str) -> Self {
        let letters = label.chars().map(|c| match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => c,
            _ => '_',
        });
        let name: String = "script_".chars().chain(letters).take(NAME_CHARACTERS_MAX).collect();
        Self(name.into())
    }
}

text_form!(Name, { "type": "string", "pattern": NAME_PATTERN, "maxLength": NAME_CHARACTERS_MAX });

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let mut bytes = text.bytes();
        let starts_well = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
        let goes_on_well = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if starts_well && goes_on_well && text.len() <= NAME_CHARACTERS_MAX {
            Ok(Self(text.into()))
        } else {
            Err(InvalidName { found: text.chars().take(NAME_CHARACTERS_MAX).collect() })
        }
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_snake_case() {
        let longest = "a".repeat(NAME_CHARACTERS_MAX);
        let too_long = "a".repeat(NAME_CHARACTERS_MAX + 1);
        for (text, valid) in [
            ("a", true),
            ("greeter", true),
            ("code_reviewer_2", true),
            (longest.as_str(), true),
            ("", false),
            ("2fast", false),
            ("_x", false),
            ("Greeter", false),
            ("my-agent", false),
            ("a b", false),
            ("ünder", false),
            (too_long.as_str(), false),
        ] {
            assert_eq!(text.parse::<Name>().is_ok(), valid, "{text:?}");
        }
    }
}
