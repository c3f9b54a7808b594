//! Texts in diagrams: wrapping, shortening and estimated widths.

/// A text on one line, without control characters.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    words.join(" ").replace(steers, "\u{fffd}")
}

/// A text cut to so many characters, with an ellipsis.
pub(super) fn shorten(text: &str, characters_max: usize) -> String {
    if text.chars().count() <= characters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The estimated width of a text in a wide sans-serif font.
pub(super) fn width(text: &str, font_size: f64) -> f64 {
    text.chars().map(character_width).sum::<f64>() * font_size
}

fn character_width(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' | '\\' | '"' => 0.44,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' => 1.0,
        '=' | '<' | '>' | '+' | '&' | '#' | '~' | '_' => 0.84,
        'A'..='Z' => 0.74,
        c if c.is_ascii() => 0.64,
        // Characters from the CJK blocks on are as wide as high.
        '\u{1100}'.. => 1.05,
        _ => 0.74,
    }
}

/// A count as a coordinate.
pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Wraps a text to lines of at most so many characters. Only words longer than a line are split.
pub(super) fn wrapped(text: &str, characters_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= characters_max => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => {
                let letters: Vec<char> = word.chars().collect();
                lines.extend(letters.chunks(characters_max).map(|piece| piece.iter().collect()));
            }
        }
    }
    lines
}
