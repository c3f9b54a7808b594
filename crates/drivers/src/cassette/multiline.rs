//! The representation of texts in cassettes.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A text. With line breaks it is serialized as an array of lines, so that a diff of the file shows
/// changed lines; otherwise as a string. Both are lossless.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "StringOrLines")]
pub(super) struct MultilineText(String);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text must be a string, or an array of its lines")]
enum StringOrLines {
    One(String),
    Many(Vec<String>),
}

impl MultilineText {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for MultilineText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<MultilineText> for String {
    fn from(multiline: MultilineText) -> Self {
        multiline.0
    }
}

impl From<StringOrLines> for MultilineText {
    fn from(written: StringOrLines) -> Self {
        match written {
            StringOrLines::One(text) => Self(text),
            StringOrLines::Many(multiline) => Self(multiline.join("\n")),
        }
    }
}

impl Serialize for MultilineText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.contains('\n') {
            serializer.collect_seq(self.0.split('\n'))
        } else {
            serializer.serialize_str(&self.0)
        }
    }
}

impl fmt::Debug for MultilineText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_byte_for_byte() {
        for (text, written) in [
            ("", r#""""#),
            ("one", r#""one""#),
            ("one\n", r#"["one",""]"#),
            ("\n", r#"["",""]"#),
            ("one\r\n\ttwo\n\n", r#"["one\r","\ttwo","",""]"#),
            ("\u{2028}\u{0}ü", "\"\u{2028}\\u0000ü\""),
        ] {
            let multiline = MultilineText::from(text.to_owned());
            assert_eq!(serde_json::to_string(&multiline).unwrap(), written);
            assert_eq!(serde_json::from_str::<MultilineText>(written).unwrap().as_str(), text);
        }
        let wrong = serde_json::from_str::<MultilineText>("7").unwrap_err().to_string();
        assert!(wrong.starts_with("a text must be a string, or an array"), "{wrong}");
    }
}
