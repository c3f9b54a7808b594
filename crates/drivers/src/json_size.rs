//! The size of JSON once it is parsed.
//!
//! A parsed value takes up to 64 bytes for each two bytes of text, so a limit on the length of a text
//! does not bound the memory of its values.

use memchr::memchr2;

/// The most values in one JSON text from another program.
pub(crate) const JSON_VALUES_MAX: usize = 1_000_000;

/// True if a text has more than [`JSON_VALUES_MAX`] values.
pub(crate) fn has_too_many_values(text: &[u8]) -> bool {
    // A value has at least one byte.
    text.len() > JSON_VALUES_MAX && count_json_values(text) > JSON_VALUES_MAX
}

/// Counts the values of a JSON text without parsing it: each but the first follows an opening
/// bracket or a comma. An empty collection counts as one value too many.
pub(crate) fn count_json_values(text: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' | b',' => count += 1,
            b'"' => at = after_string(text, at),
            _ => {}
        }
    }
    count
}

/// The position after a string whose opening quote is before `at`.
fn after_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The escaped character.
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_values_outside_strings() {
        for (text, values) in [
            ("1", 1),
            ("[1,2,3]", 4),
            (r#"{"a": [1, {"b": 2}], "c": "x,[{\",,\\"}"#, 6),
            (r#"["unfinished, [[["#, 2),
            (r#"["\"#, 2),
        ] {
            assert_eq!(count_json_values(text.as_bytes()), values, "{text}");
        }
    }
}
