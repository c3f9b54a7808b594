//! Searches a text for many literals at once, all of them short.

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Input, Match, MatchKind, Span};

/// Finds the first of some literals.
pub(super) enum Finder {
    /// Compares many bytes at once, where the machine can and the literals are few.
    Packed(packed::Searcher),
    /// Goes from byte to byte.
    Automaton(AhoCorasick),
}

impl Finder {
    pub(super) fn new<L: AsRef<[u8]>>(literals: &[L]) -> Result<Self, BuildError> {
        let kind = packed::MatchKind::LeftmostFirst;
        let mut packed = packed::Config::new().match_kind(kind).builder();
        if let Some(searcher) = packed.extend(literals).build() {
            return Ok(Self::Packed(searcher));
        }
        // The fastest kind takes much memory for each byte of a literal, of which there are few.
        let mut automaton = AhoCorasick::builder();
        automaton.match_kind(MatchKind::LeftmostFirst).kind(Some(AhoCorasickKind::DFA));
        Ok(Self::Automaton(automaton.build(literals)?))
    }

    /// The first literal in the text from a place on.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<Match> {
        let span = Span { start: from, end: text.len() };
        match self {
            Self::Packed(searcher) => searcher.find_in(text, span),
            Self::Automaton(automaton) => automaton.find(Input::new(text).span(span)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_literals_are_found_alike() {
        let text = b"nothing, then number-7, then number-150";
        for count in [8, 151] {
            let literals: Vec<_> = (0..count).map(|number| format!("number-{number},")).collect();
            let finder = Finder::new(&literals).unwrap();
            let found = finder.next(text, 0).unwrap();
            assert_eq!((found.pattern().as_usize(), found.range()), (7, 14..23));
            assert!(finder.next(text, found.end()).is_none());
        }
    }
}
