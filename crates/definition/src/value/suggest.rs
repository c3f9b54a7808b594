//! Suggestions for misspelled words.

/// Words are similar if at most one letter in this many differs.
const DISTANCE_SHARE: usize = 3;

/// The least length of a prefix that suggests the whole word.
const BEGINNING_LETTERS_MIN: usize = 4;

/// The candidate most similar to `word`, if it is close enough to be a typo.
///
/// Case, `-`, `_`, spaces and a missing end count as typos.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = fold(word);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let folded = fold(candidate);
        let cut_short = word.len() >= BEGINNING_LETTERS_MIN && folded.starts_with(&word);
        let distance = if cut_short { 1 } else { strsim::osa_distance(&word, &folded) };
        let letters = word.chars().count().max(folded.chars().count());
        let close_enough = distance <= (letters + 1) / DISTANCE_SHARE;
        // Words without a common letter are never similar.
        if close_enough && distance < letters && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

const BEFORE: &str = ", did you mean \"";
const AFTER: &str = "\"?";

/// The end of a message that suggests a word.
pub(crate) fn did_you_mean(near: &str) -> String {
    format!("{BEFORE}{near}{AFTER}")
}

/// Splits a message from its suggestion. Types of values report errors as text only.
pub(crate) fn split(message: &str) -> (&str, Option<&str>) {
    let split = message.strip_suffix(AFTER).and_then(|message| message.rsplit_once(BEFORE));
    split.map_or((message, None), |(message, near)| (message, Some(near)))
}

fn fold(word: &str) -> String {
    word.chars()
        .map(|c| if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_similar_words() {
        let words =
            ["tools", "role", "read-only", "stdin", "max_iterations", "react", "reflection"];
        for (word, expected) in [
            ("tool", Some("tools")),
            ("rol", Some("role")),
            ("Role", Some("role")),
            ("read_only", Some("read-only")),
            ("READ ONLY", Some("read-only")),
            ("maxIterations", Some("max_iterations")),
            ("reflecton", Some("reflection")),
            ("reflect", Some("reflection")),
            ("banana", None),
            ("", None),
            ("xx", None),
        ] {
            assert_eq!(nearest(word, words), expected, "{word:?}");
        }
        assert_eq!(nearest("a", ["b"]), None);
    }

    #[test]
    fn splits_the_suggestion_from_a_message() {
        let message = format!("there is no \"a\"{}", did_you_mean("b"));
        assert_eq!(message, "there is no \"a\", did you mean \"b\"?");
        assert_eq!(split(&message), ("there is no \"a\"", Some("b")));
        assert_eq!(split("who is \"a\"?"), ("who is \"a\"?", None));
    }
}
