//! Characters that a terminal obeys, and text without them.

use std::borrow::Cow;
use std::fmt::Write;

/// The sign in place of a character that a terminal would obey.
const REPLACEMENT: char = '\u{fffd}';

/// True for characters that control a terminal, change the direction of text, or are invisible.
///
/// The joiners U+200C and U+200D and the variation selectors U+FE00 to U+FE0F are invisible too,
/// but Persian, Hindi and emoji cannot be written without them.
pub(super) fn is_obeyed(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fdd0}'..='\u{fdef}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    is_format || (c.is_control() && c != '\n' && c != '\t')
}

/// Replaces each character that a terminal obeys by a visible sign. Line ends and tabs stay.
pub(crate) fn neutralise(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut neutral = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            // The line end of other systems.
            '\r' if rest.peek() == Some(&'\n') => {}
            c if is_obeyed(c) => neutral.push(REPLACEMENT),
            c => neutral.push(c),
        }
    }
    Cow::Owned(neutral)
}

/// Escapes each character of a JSON text that a terminal obeys. JSON has them in strings only,
/// whose value stays the same.
pub(super) fn escape_json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_obeyed_characters_is_unchanged() {
        for text in ["plain\ttext\nand ü", "👩\u{200d}🔬 ❤\u{fe0f} می\u{200c}خواهم", "אבג �"]
        {
            assert_eq!(neutralise(text), text);
            assert_eq!(escape_json(text), text);
        }
    }

    #[test]
    fn obeyed_characters_are_replaced() {
        assert_eq!(neutralise("\u{1b}[31mred\r\u{7}\u{9b}\u{202e}"), "�[31mred����");
        assert_eq!(neutralise("a\u{200b}b\u{feff}\u{2067}\u{e0041}\u{ad}\u{7f}"), "a�b�����");
        assert_eq!(neutralise("one\r\ntwo\r"), "one\ntwo�");
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = serde_json::json!({"\u{202e}k": "\u{9b}2J \u{7f} \u{e0041} \u{1b}[31m ü"});
        let text = value.to_string();
        let escaped = escape_json(&text);
        assert!(!escaped.contains(is_obeyed), "{escaped:?}");
        assert!(escaped.contains("\\u009b2J \\u007f \\udb40\\udc41"), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    #[test]
    fn no_character_that_moves_or_hides_text_is_left() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let shown = neutralise(c.encode_utf8(&mut [0; 4])).into_owned();
            let is_control = shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
            assert!(!is_control, "{c:?}");
        }
    }
}
