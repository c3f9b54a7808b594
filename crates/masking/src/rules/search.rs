//! The search of a text for the secrets of all rules.

use std::ops::Range;
use std::sync::Arc;

use aho_corasick::BuildError;

use super::SecretRule;
use super::compiled::{MatchStart, RuleHit};
use crate::detectors::heuristics::{is_placeholder, starts_word};
use crate::literal_finder::LiteralFinder;
use crate::masked_span::MaskedSpan;
use crate::scan::{SecretMatch, TextExtent, line_around};

/// The most keywords of one pass: more cannot be searched for with SIMD instructions.
const PASS_KEYWORDS_MAX: usize = 64;

pub(crate) struct RuleSearch {
    /// The built-in rules, then others.
    rules: Vec<Arc<SecretRule>>,
    built_in: usize,
    passes: Vec<KeywordPass>,
    /// The rules without keywords.
    unconditional: Vec<usize>,
    holds_lines: bool,
}

/// One search for many keywords.
struct KeywordPass {
    finder: LiteralFinder,
    /// The rules of each keyword.
    rules: Vec<Vec<usize>>,
}

/// A line, and the progress of each rule on it.
struct RuleLine {
    range: Range<usize>,
    /// The position after the last blank; a word that ends there is complete.
    last_word: usize,
    /// The position from which each rule continues.
    done: Vec<usize>,
}

impl RuleSearch {
    /// `built_in` rules write keywords in the case in which they occur; others in any.
    pub(crate) fn new(
        built_in: Vec<Arc<SecretRule>>,
        others: Vec<Arc<SecretRule>>,
    ) -> Result<Self, BuildError> {
        let built_in_count = built_in.len();
        let rules: Vec<_> = built_in.into_iter().chain(others).collect();
        let (built_in, others) = rules.split_at(built_in_count);
        let mut passes = Vec::new();
        let keywords = keywords_of(built_in, 0);
        for literals in literals_of(&keywords).chunks(PASS_KEYWORDS_MAX) {
            passes.push(KeywordPass::new(LiteralFinder::new(literals)?, literals, &keywords));
        }
        let keywords = keywords_of(others, built_in_count);
        if !keywords.is_empty() {
            let literals = literals_of(&keywords);
            let finder = LiteralFinder::ignoring_case(&literals)?;
            passes.push(KeywordPass::new(finder, &literals, &keywords));
        }
        let is_unconditional = |index: &usize| rules[*index].keywords().is_empty();
        let unconditional = (0..rules.len()).filter(is_unconditional).collect();
        let holds_lines = rules.iter().any(|rule| rule.holds_lines());
        Ok(Self { rules, built_in: built_in_count, passes, unconditional, holds_lines })
    }

    /// True if an incomplete line cannot be shown.
    pub(crate) fn holds_lines(&self) -> bool {
        self.holds_lines
    }

    /// Calls `found` with each match, and with each place where an incomplete line may become one.
    pub(crate) fn find_all(
        &self,
        text: &[u8],
        extent: TextExtent,
        mut found: impl FnMut(SecretMatch),
    ) {
        for pass in &self.passes {
            let mut line: Option<RuleLine> = None;
            let mut from = 0;
            while let Some(hit) = pass.finder.next(text, from) {
                // Another keyword may start within this one.
                from = hit.start() + 1;
                if line.as_ref().is_none_or(|line| hit.start() >= line.range.end) {
                    line = Some(RuleLine::after(line, text, hit.start(), self.rules.len()));
                }
                let Some(line) = &mut line else { continue };
                for index in pass.rules.get(hit.pattern().as_usize()).into_iter().flatten() {
                    self.match_line(*index, (text, extent), hit.start(), line, &mut found);
                }
            }
        }
        if self.unconditional.is_empty() {
            return;
        }
        let mut last = None;
        let mut from = 0;
        while from < text.len() {
            let mut line = RuleLine::after(last, text, from, self.rules.len());
            for index in &self.unconditional {
                self.match_line(*index, (text, extent), from, &mut line, &mut found);
            }
            let end = line.range.end;
            last = Some(line);
            from = memchr::memchr(b'\n', &text[end..]).map_or(text.len(), |at| end + at + 1);
        }
    }

    /// Matches a rule at a keyword, or with the whole line once.
    fn match_line(
        &self,
        index: usize,
        (text, extent): (&[u8], TextExtent),
        at: usize,
        line: &mut RuleLine,
        found: &mut impl FnMut(SecretMatch),
    ) {
        let rule = &self.rules[index];
        let bytes = &text[line.range.clone()];
        let offset = line.range.start;
        let at = at - offset;
        if at < line.done[index] {
            return;
        }
        let last_word = line.last_word;
        let mut report = |matched: RuleHit| {
            let is_open = match (extent, rule.start()) {
                (TextExtent::Complete, _) => matched.whole.end == bytes.len(),
                (TextExtent::Incomplete, MatchStart::Keyword { .. }) => {
                    rule.may_continue(&bytes[at..])
                }
                (TextExtent::Incomplete, MatchStart::Line) => matched.whole.end >= last_word,
            };
            if is_open && extent == TextExtent::Incomplete {
                // More text may change the match from its start on.
                let from = matched.whole.start + offset;
                found(SecretMatch { from, span: None, is_open, is_key: false });
            }
            let is_placeholder = |secret: &Range<usize>| {
                index < self.built_in && is_placeholder(&bytes[secret.clone()])
            };
            let secret = matched.secret.filter(|secret| !is_placeholder(secret));
            if let Some(Range { start, end }) = secret {
                let span = MaskedSpan::secret(start + offset, end + offset);
                let from = matched.whole.start + offset;
                found(SecretMatch { from, span: Some(span), is_open, is_key: false });
            }
        };
        match rule.start() {
            MatchStart::Keyword { is_word } => {
                if is_word && !starts_word(bytes, at) {
                    return;
                }
                if let Some(matched) = rule.find(bytes, at) {
                    line.done[index] = matched.whole.end;
                    report(matched);
                } else if extent == TextExtent::Incomplete && rule.may_continue(&bytes[at..]) {
                    let from = at + offset;
                    found(SecretMatch { from, span: None, is_open: true, is_key: false });
                }
            }
            MatchStart::Line => {
                let mut from = 0;
                while let Some(matched) = rule.find(bytes, from) {
                    from = matched.whole.end.max(from + 1);
                    report(matched);
                    if from > bytes.len() {
                        break;
                    }
                }
                line.done[index] = usize::MAX;
            }
        }
    }
}

impl RuleLine {
    /// The line at a position, with the memory of the previous one.
    fn after(last: Option<Self>, text: &[u8], at: usize, rules: usize) -> Self {
        let range = line_around(text, at);
        let is_blank = |byte: &u8| byte.is_ascii_whitespace();
        let last_word = text[range.clone()].iter().rposition(is_blank).map_or(0, |at| at + 1);
        let mut done = last.map(|line| line.done).unwrap_or_default();
        done.clear();
        done.resize(rules, 0);
        Self { range, last_word, done }
    }
}

impl KeywordPass {
    /// A keyword also stands for those that start with it, and for those that it starts with: only
    /// one of them is found at a position.
    fn new(finder: LiteralFinder, literals: &[&str], keywords: &[(&str, usize)]) -> Self {
        let is_start = |start: &str, of: &str| {
            of.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
        };
        let rules_of = |literal: &&str| {
            let same = |keyword: &str| is_start(keyword, literal) || is_start(literal, keyword);
            let of_same = keywords.iter().filter(|(keyword, _)| same(keyword));
            let mut rules: Vec<_> = of_same.map(|(_, rule)| *rule).collect();
            rules.sort_unstable();
            rules.dedup();
            rules
        };
        Self { finder, rules: literals.iter().map(rules_of).collect() }
    }
}

/// Each keyword with the number of its rule.
fn keywords_of(rules: &[Arc<SecretRule>], first: usize) -> Vec<(&str, usize)> {
    let numbered = rules.iter().enumerate().flat_map(|(index, rule)| {
        rule.keywords().iter().map(move |keyword| (keyword.as_str(), first + index))
    });
    numbered.collect()
}

/// The different keywords, longest first: SIMD search is faster without short ones.
fn literals_of<'k>(keywords: &[(&'k str, usize)]) -> Vec<&'k str> {
    let mut literals: Vec<_> = keywords.iter().map(|(keyword, _)| *keyword).collect();
    literals.sort_unstable_by_key(|keyword| (std::cmp::Reverse(keyword.len()), *keyword));
    literals.dedup();
    literals
}
