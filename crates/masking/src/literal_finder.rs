//! Searches a text for many short literals at once.

use aho_corasick::packed;
use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, Input, Match, MatchKind, Span};

pub(super) enum LiteralFinder {
    /// SIMD search, if the machine supports it and the literals are few.
    Packed(packed::Searcher),
    /// Byte by byte.
    Automaton(AhoCorasick),
}

impl LiteralFinder {
    pub(super) fn new<L: AsRef<[u8]>>(literals: &[L]) -> Result<Self, BuildError> {
        let kind = packed::MatchKind::LeftmostFirst;
        let mut packed = packed::Config::new().match_kind(kind).builder();
        if let Some(searcher) = packed.extend(literals).build() {
            return Ok(Self::Packed(searcher));
        }
        // A DFA is fastest. It needs much memory per literal byte, but the literals are short.
        let mut automaton = AhoCorasick::builder();
        automaton.match_kind(MatchKind::LeftmostFirst).kind(Some(AhoCorasickKind::DFA));
        Ok(Self::Automaton(automaton.build(literals)?))
    }

    /// Finds the literals in any case, byte by byte.
    pub(super) fn ignoring_case<L: AsRef<[u8]>>(literals: &[L]) -> Result<Self, BuildError> {
        let mut automaton = AhoCorasick::builder();
        automaton.match_kind(MatchKind::LeftmostFirst).kind(Some(AhoCorasickKind::DFA));
        Ok(Self::Automaton(automaton.ascii_case_insensitive(true).build(literals)?))
    }

    /// The first literal at or after `from`.
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
    fn finds_few_and_many_literals_alike() {
        let text = b"nothing, then number-7, then number-150";
        for count in [8, 151] {
            let literals: Vec<_> = (0..count).map(|number| format!("number-{number},")).collect();
            let finder = LiteralFinder::new(&literals).unwrap();
            let found = finder.next(text, 0).unwrap();
            assert_eq!((found.pattern().as_usize(), found.range()), (7, 14..23));
            assert!(finder.next(text, found.end()).is_none());
        }
    }
}
