//! A rule that is ready to match.

use std::ops::Range;
use std::sync::OnceLock;

use regex::bytes::{Captures, Regex, RegexBuilder};
use regex_automata::hybrid::dfa::DFA;
use regex_automata::{Anchored, Input};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Class, Hir, HirKind};
use thiserror::Error;

use super::{AllowlistSource, RegexTarget, RuleSource};

/// The largest compiled form of a regular expression, in bytes.
pub(crate) const REGEX_BYTES_MAX: usize = 1 << 20;

/// A word boundary. At the start of a rule it also holds after escapes and colours.
const WORD_BOUNDARY: &str = r"\b";

/// A rule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct RuleError {
    /// The field of the rule.
    pub field: &'static str,
    /// The reason.
    pub message: String,
}

/// The position of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchStart {
    /// It starts with a keyword. If `is_word`, a word starts there.
    Keyword { is_word: bool },
    /// It may start anywhere on the line of a keyword.
    Line,
}

/// A rule that describes one kind of secret.
#[derive(Debug)]
pub struct SecretRule {
    source: RuleSource,
    start: MatchStart,
    /// True if a match may contain blanks.
    spans_blanks: bool,
    /// Compiled when a keyword is found for the first time.
    matcher: OnceLock<Option<RuleMatcher>>,
}

#[derive(Debug)]
struct RuleMatcher {
    regex: Regex,
    /// The regular expression, for text that is not complete. Built when it is first needed.
    continuation: OnceLock<Option<DFA>>,
    allowlists: Vec<Allowlist>,
}

#[derive(Debug)]
struct Allowlist {
    target: RegexTarget,
    regexes: Vec<Regex>,
    stopwords: Vec<String>,
}

/// A match of a rule on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleHit {
    pub(crate) whole: Range<usize>,
    /// The secret; `None` if the match is harmless.
    pub(crate) secret: Option<Range<usize>>,
}

impl PartialEq for SecretRule {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl SecretRule {
    /// Checks and compiles a rule.
    pub fn new(source: RuleSource) -> Result<Self, RuleError> {
        let wrong = |field, message: &str| Err(RuleError { field, message: message.to_owned() });
        if source.id.trim().is_empty() {
            return wrong("id", "must not be empty");
        }
        if source.keywords.iter().flatten().any(String::is_empty) {
            return wrong("keywords", "must not contain an empty text");
        }
        let rule = Self::unchecked(source);
        let matcher = rule.compile()?;
        if rule.source.secret_group.is_some_and(|group| group >= matcher.regex.captures_len()) {
            return wrong("secretGroup", "the regular expression has no such group");
        }
        if matcher.regex.is_match(b"") {
            return wrong("regex", "matches the empty text, so it describes no secret");
        }
        _ = rule.matcher.set(Some(matcher));
        Ok(rule)
    }

    /// A rule that is known to be valid, compiled when it is first needed.
    pub(crate) fn unchecked(source: RuleSource) -> Self {
        let (start, spans_blanks) = analyse(&source);
        Self { source, start, spans_blanks, matcher: OnceLock::new() }
    }

    /// The name of the rule.
    pub fn id(&self) -> &str {
        &self.source.id
    }

    /// The rule as written.
    pub fn source(&self) -> &RuleSource {
        &self.source
    }

    pub(crate) fn start(&self) -> MatchStart {
        self.start
    }

    pub(crate) fn keywords(&self) -> &[String] {
        self.source.keywords.as_deref().unwrap_or_default()
    }

    /// True if text before a keyword may belong to a match in another word, so that an incomplete
    /// line cannot be shown.
    pub(crate) fn holds_lines(&self) -> bool {
        let is_blank = |keyword: &String| keyword.trim_end().contains(char::is_whitespace);
        let starts_late = self.start == MatchStart::Line && self.spans_blanks;
        self.keywords().is_empty() || starts_late || self.keywords().iter().any(is_blank)
    }

    /// True if the match at this position of an incomplete line may start, end or change later.
    pub(crate) fn may_continue(&self, rest: &[u8]) -> bool {
        let Some(matcher) = self.matcher() else { return false };
        let build = || {
            let syntax = regex_automata::util::syntax::Config::new().unicode(false).utf8(false);
            DFA::builder().syntax(syntax).build(&self.text()).ok()
        };
        let Some(dfa) = matcher.continuation.get_or_init(build) else { return true };
        let mut cache = dfa.create_cache();
        let input = Input::new(rest).anchored(Anchored::Yes);
        let Ok(mut state) = dfa.start_state_forward(&mut cache, &input) else { return true };
        // An error means that the cache is full.
        let mut step = |state, byte| dfa.next_state(&mut cache, state, byte).ok();
        for byte in rest {
            match step(state, *byte) {
                Some(next) if next.is_dead() => return false,
                Some(next) => state = next,
                None => return true,
            }
        }
        // A match is seen one byte late, so that its last state may lead nowhere.
        (0..=u8::MAX).any(|byte| step(state, byte).is_none_or(|next| !next.is_dead()))
    }

    fn matcher(&self) -> Option<&RuleMatcher> {
        self.matcher.get_or_init(|| self.compile().ok()).as_ref()
    }

    /// The first match at or after a position of a line; if the rule starts with its keyword, only
    /// a match at that position.
    pub(crate) fn find(&self, line: &[u8], from: usize) -> Option<RuleHit> {
        let matcher = self.matcher()?;
        let (captures, offset) = match self.start {
            MatchStart::Keyword { .. } => (matcher.regex.captures(&line[from..])?, from),
            MatchStart::Line => (matcher.regex.captures_at(line, from)?, 0),
        };
        let shifted = |range: Range<usize>| range.start + offset..range.end + offset;
        let whole = shifted(captures.get(0)?.range());
        let secret = self.secret_group(&captures).map(shifted);
        let is_secret =
            |secret: &Range<usize>| self.is_secret(matcher, line, &whole, &line[secret.clone()]);
        Some(RuleHit { secret: secret.filter(is_secret), whole })
    }

    fn secret_group(&self, captures: &Captures<'_>) -> Option<Range<usize>> {
        let group = |index| captures.get(index).filter(|group| !group.is_empty());
        let secret = match self.source.secret_group {
            Some(index) => group(index),
            None => (1..captures.len()).find_map(group).or_else(|| group(0)),
        };
        Some(secret?.range())
    }

    fn is_secret(
        &self,
        matcher: &RuleMatcher,
        line: &[u8],
        whole: &Range<usize>,
        secret: &[u8],
    ) -> bool {
        let is_random = self.source.entropy.is_none_or(|least| entropy(secret) > least);
        let is_allowed = |list: &Allowlist| {
            let target = match list.target {
                RegexTarget::Secret => secret,
                RegexTarget::Match => &line[whole.clone()],
                RegexTarget::Line => line,
            };
            let has = |word: &String| {
                secret.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
            };
            list.regexes.iter().any(|regex| regex.is_match(target))
                || list.stopwords.iter().any(has)
        };
        is_random && !matcher.allowlists.iter().any(is_allowed)
    }

    /// The text of the regular expression. A rule that starts with its keyword is anchored.
    fn text(&self) -> String {
        match self.start {
            MatchStart::Keyword { is_word } => {
                let rest = if is_word { WORD_BOUNDARY.len() } else { 0 };
                format!("^(?:{})", &self.source.regex[rest..])
            }
            MatchStart::Line => self.source.regex.clone(),
        }
    }

    fn compile(&self) -> Result<RuleMatcher, RuleError> {
        let lists = self.source.allowlists.iter().flatten();
        Ok(RuleMatcher {
            regex: compile(&self.text(), "regex")?,
            continuation: OnceLock::new(),
            allowlists: lists.map(Allowlist::new).collect::<Result<_, _>>()?,
        })
    }
}

impl Allowlist {
    fn new(source: &AllowlistSource) -> Result<Self, RuleError> {
        let regexes = source.regexes.iter().flatten().map(|text| compile(text, "allowlists"));
        let stopwords = source.stopwords.iter().flatten().filter(|word| !word.is_empty());
        Ok(Self {
            target: source.regex_target.unwrap_or_default(),
            regexes: regexes.collect::<Result<_, _>>()?,
            stopwords: stopwords.cloned().collect(),
        })
    }
}

fn compile(text: &str, field: &'static str) -> Result<Regex, RuleError> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).size_limit(REGEX_BYTES_MAX);
    builder.build().map_err(|error| RuleError { field, message: regex_reason(&error) })
}

/// The last line of the message, which has the reason.
fn regex_reason(error: &regex::Error) -> String {
    let message = error.to_string();
    let reason = message.lines().last().unwrap_or_default();
    reason.strip_prefix("error: ").unwrap_or(reason).to_owned()
}

/// Finds the position of matches, and if they may contain blanks.
fn analyse(source: &RuleSource) -> (MatchStart, bool) {
    let (text, is_word) = match source.regex.strip_prefix(WORD_BOUNDARY) {
        Some(rest) => (rest, true),
        None => (source.regex.as_str(), false),
    };
    let parsed = ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    let Ok(hir) = parsed else { return (MatchStart::Line, true) };
    let keywords = source.keywords.as_deref().unwrap_or_default();
    let starts_with_keyword = |literal: &[u8]| {
        let is_start = |keyword: &String| {
            literal
                .get(..keyword.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(keyword.as_bytes()))
        };
        keywords.iter().any(is_start)
    };
    let prefixes = Extractor::new().extract(&hir);
    let is_anchored = hir.properties().look_set_prefix().is_empty()
        && prefixes.literals().is_some_and(|literals| {
            !literals.is_empty() && literals.iter().all(|one| starts_with_keyword(one.as_bytes()))
        });
    let start = if is_anchored { MatchStart::Keyword { is_word } } else { MatchStart::Line };
    (start, has_blanks(&hir))
}

fn has_blanks(hir: &Hir) -> bool {
    let is_between =
        |start: u32, end: u32| [9, 10, 12, 13, 32].iter().any(|c| (start..=end).contains(c));
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.iter().any(u8::is_ascii_whitespace),
        HirKind::Class(Class::Unicode(class)) => class
            .ranges()
            .iter()
            .any(|range| is_between(u32::from(range.start()), u32::from(range.end()))),
        HirKind::Class(Class::Bytes(class)) => class
            .ranges()
            .iter()
            .any(|range| is_between(u32::from(range.start()), u32::from(range.end()))),
        HirKind::Repetition(repeated) => has_blanks(&repeated.sub),
        HirKind::Capture(group) => has_blanks(&group.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(has_blanks),
    }
}

/// The Shannon entropy, in bits per byte.
#[expect(clippy::cast_precision_loss, reason = "a line has far fewer bytes")]
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(*byte)] += 1;
    }
    let part = |count: &u32| {
        let share = f64::from(*count) / text.len() as f64;
        -share * share.log2()
    };
    counts.iter().filter(|count| **count > 0).map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(regex: &str, keywords: &[&str]) -> RuleSource {
        let keywords = keywords.iter().map(|keyword| (*keyword).to_owned()).collect();
        RuleSource {
            id: "own".to_owned(),
            regex: regex.to_owned(),
            keywords: Some(keywords),
            ..RuleSource::default()
        }
    }

    #[test]
    fn finds_the_start_and_blanks_of_matches() {
        let word = MatchStart::Keyword { is_word: true };
        let keyword = MatchStart::Keyword { is_word: false };
        for (regex, keywords, start, blanks) in [
            (r"\bghp_\w+", &["ghp_"][..], word, false),
            (r"\bgh[po]_[a-z]+", &["GHP_", "gho_"], word, false),
            (r"\bgh[po]_[a-z]+", &["ghp_"], MatchStart::Line, false),
            ("key: .+", &["key"], keyword, true),
            ("^key=[a-z]+", &["key"], MatchStart::Line, false),
            (r"\w+-key", &["key"], MatchStart::Line, false),
            (r"\w+", &[], MatchStart::Line, false),
            (r"\w+[^a]", &[], MatchStart::Line, true),
        ] {
            assert_eq!(analyse(&source(regex, keywords)), (start, blanks), "{regex}");
        }
    }

    #[test]
    fn refuses_rules_that_cannot_work() {
        let group = RuleSource { secret_group: Some(2), ..source("a(b)", &[]) };
        let id = RuleSource { id: " ".to_owned(), ..source("a", &[]) };
        for (rule, field, message) in [
            (source("(", &[]), "regex", "unclosed group"),
            (source("a*", &[]), "regex", "matches the empty text, so it describes no secret"),
            (
                source("(?:a{1000}){1000}", &[]),
                "regex",
                "Compiled regex exceeds size limit of 1048576 bytes.",
            ),
            (source("a", &[""]), "keywords", "must not contain an empty text"),
            (group, "secretGroup", "the regular expression has no such group"),
            (id, "id", "must not be empty"),
        ] {
            let error = SecretRule::new(rule.clone()).unwrap_err();
            assert_eq!((error.field, error.message.as_str()), (field, message), "{rule:?}");
        }
    }

    #[test]
    fn entropy_counts_bits_per_byte() {
        for (text, bits) in [("aaaa", 0.0), ("abab", 1.0), ("abcdefgh", 3.0)] {
            assert!((entropy(text.as_bytes()) - bits).abs() < 1e-9, "{text}");
        }
    }
}
