//! A program with its arguments, as a list of texts or as one text. No shell is involved.

use std::borrow::Cow;
use std::fmt;

use polity_model::value::InvalidValue;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A program with its arguments. One text is split at white space; quotes group words, and a
/// backslash escapes the next character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramCommand {
    /// The program, by a path relative to the home or by a name on the PATH.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl TryFrom<Vec<String>> for ProgramCommand {
    type Error = InvalidValue;

    fn try_from(words: Vec<String>) -> Result<Self, InvalidValue> {
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if !program.trim().is_empty() => {
                Ok(Self { program, args: words.collect() })
            }
            Some(_) | None => {
                Err(InvalidValue::new("must begin with the name of a program".to_owned()))
            }
        }
    }
}

impl Serialize for ProgramCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(std::iter::once(&self.program).chain(&self.args))
    }
}

impl<'de> Deserialize<'de> for ProgramCommand {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ProgramCommandVisitor)
    }
}

struct ProgramCommandVisitor;

impl<'de> Visitor<'de> for ProgramCommandVisitor {
    type Value = ProgramCommand;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts: a program and its arguments")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ProgramCommand, E> {
        words(text).and_then(ProgramCommand::try_from).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<ProgramCommand, A::Error> {
        let words: Vec<String> = Vec::deserialize(SeqAccessDeserializer::new(items))?;
        ProgramCommand::try_from(words).map_err(A::Error::custom)
    }
}

impl JsonSchema for ProgramCommand {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CommandLine".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "pattern": "\\S" },
            { "type": "array", "items": { "type": "string" }, "minItems": 1 },
        ] })
    }
}

/// Splits a text into words. Errors do not repeat the text, which may hold secrets.
fn words(text: &str) -> Result<Vec<String>, InvalidValue> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            // An empty pair of quotes is an empty word.
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                let next = characters.next().ok_or_else(|| {
                    InvalidValue::new("ends with a backslash, which means nothing there".to_owned())
                })?;
                let word = word.get_or_insert_default();
                if quote.is_some() && !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(InvalidValue::new(format!("has a quote that is not closed: {open}")));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_text_into_words_without_a_shell() {
        for (text, expected) in [
            ("notify-send", &["notify-send"][..]),
            ("  a\tb  c\n", &["a", "b", "c"]),
            ("say 'two words' \"and 'two'\" ''", &["say", "two words", "and 'two'", ""]),
            (r#"a\ b "c\"d\e" 'f\g' h"i"j"#, &["a b", r#"c"d\e"#, r"f\g", "hij"]),
            ("a; b | c > $d `e` ${F}", &["a;", "b", "|", "c", ">", "$d", "`e`", "${F}"]),
            ("  ", &[]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        for (text, expected) in [
            ("a 'b", "has a quote that is not closed: '"),
            ("a \"b'", "has a quote that is not closed: \""),
            ("a\\", "ends with a backslash, which means nothing there"),
        ] {
            assert_eq!(words(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
