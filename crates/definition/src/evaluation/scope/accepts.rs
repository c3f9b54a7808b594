//! Detection of an accepting critique.

/// True if the first non-empty line has the word `accept` or `accepted`, case-insensitively.
pub(crate) fn accepts(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let mut words = first.split(|c: char| !c.is_alphanumeric());
    words.any(|word| ["accept", "accepted"].iter().any(|yes| word.eq_ignore_ascii_case(yes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_decides() {
        for text in ["ACCEPT", "Accepted.", "\n  **accept**\nWell done.", "I accept it: fine"] {
            assert!(accepts(text), "{text:?}");
        }
        for text in ["", "REVISE\nI accept the rest.", "This is not acceptable.", "unaccepted"] {
            assert!(!accepts(text), "{text:?}");
        }
    }
}
