//! The fuzz target of this module.

use super::neutral::{escape_json, is_obeyed, neutralise};
use super::{TextStyle, render, styled};

/// Prints a text as it is, as JSON and between styled words. No character that a terminal obeys is
/// left but those of the styles, and JSON keeps its value.
///
/// # Panics
/// If one of these promises is broken.
pub fn terminal_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let neutral = neutralise(&text);
    assert!(!neutral.contains(is_obeyed), "a terminal would obey {neutral:?}");
    assert_eq!(neutralise(&neutral), neutral, "neutral text is changed again");
    let marked =
        format!("{}{text}{}", styled(TextStyle::Error, &text), styled(TextStyle::Dim, "end"));
    let plain = anstream::adapter::strip_str(&render(&marked)).to_string();
    assert_eq!(plain, format!("{neutral}{neutral}end"), "a style changed the text");
    let json = serde_json::Value::from(text.as_ref());
    let escaped = escape_json(&json.to_string()).into_owned();
    assert!(!escaped.contains(is_obeyed), "a terminal would obey {escaped:?}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).ok(), Some(json));
}
