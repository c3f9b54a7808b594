//! Texts as cassettes write them.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// A text. One with line breaks is written as an array of its lines, so that a review shows which
/// of them changed; any other as a string. Either comes back byte for byte.
#[derive(Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "Written")]
pub(super) struct Lines(String);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text must be a string, or an array of its lines")]
enum Written {
    One(String),
    Many(Vec<String>),
}

impl Lines {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Lines {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<Lines> for String {
    fn from(lines: Lines) -> Self {
        lines.0
    }
}

impl From<Written> for Lines {
    fn from(written: Written) -> Self {
        match written {
            Written::One(text) => Self(text),
            Written::Many(lines) => Self(lines.join("\n")),
        }
    }
}

impl Serialize for Lines {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.contains('\n') {
            serializer.collect_seq(self.0.split('\n'))
        } else {
            serializer.serialize_str(&self.0)
        }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_byte_for_byte() {
        for (text, written) in [
            ("", r#""""#),
            ("one", r#""one""#),
            ("one\n", r#"["one",""]"#),
            ("\n", r#"["",""]"#),
            ("one\r\n\ttwo\n\n", r#"["one\r","\ttwo","",""]"#),
            ("\u{2028}\u{0}ü", "\"\u{2028}\\u0000ü\""),
        ] {
            let lines = Lines::from(text.to_owned());
            assert_eq!(serde_json::to_string(&lines).unwrap(), written);
            assert_eq!(serde_json::from_str::<Lines>(written).unwrap().as_str(), text);
        }
        let wrong = serde_json::from_str::<Lines>("7").unwrap_err().to_string();
        assert!(wrong.starts_with("a text must be a string, or an array"), "{wrong}");
    }
}
