//! Detects secrets that no single pattern describes, by literals that occur in or before them.
//!
//! One pass finds all literals; only there a detector looks closely. There is one module per kind
//! of secret, and `heuristics` for the rules that they share.

pub(super) mod assignment;
mod authorization;
pub(super) mod heuristics;
pub(super) mod key_block;
mod url_password;
mod web_token;

use std::ops::Range;

use aho_corasick::BuildError;

use super::literal_finder::LiteralFinder;

/// Parts of names for secrets, as short as possible. The rest of the name is checked afterwards.
const NAMES: [&str; 18] = [
    "assw", "ASSW", "assp", "ASSP", "pwd", "PWD", "oken", "OKEN", "ecret", "ECRET", "pi_key",
    "pi-key", "piKey", "pikey", "PI_KEY", "PIKEY", "uthoriz", "UTHORIZ",
];

/// The only authorization scheme that precedes tokens in all kinds of text.
const BEARER: [&str; 2] = ["earer", "EARER"];

/// The separator between scheme and host; it may be escaped in JSON.
const URL_MARKS: [&str; 2] = ["://", r":\/\/"];

/// The kind of secret that a literal announces.
#[derive(Debug, Clone, Copy)]
enum TriggerKind {
    WebToken,
    Assignment,
    Bearer,
    Url,
    KeyBlock,
}

/// The position of a literal in a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct TriggerSpan {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The verdict of a detector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TriggerVerdict {
    /// No secret, no matter how the line continues.
    NotSecret,
    /// No secret so far, but one may start here if the line continues.
    Undecided { from: usize },
    /// A secret. If `open`, it may continue.
    Secret { start: usize, end: usize, open: bool },
    /// A private key. If `open`, it may continue, also on the next lines.
    Key { start: usize, end: usize, open: bool },
}

impl TriggerVerdict {
    /// The verdict on a value. If `open`, the line may continue it.
    fn of_value(is_secret: bool, value: Range<usize>, open: bool) -> Self {
        let Range { start, end } = value;
        match (is_secret, open) {
            (true, _) => Self::Secret { start, end, open },
            (false, true) => Self::Undecided { from: start },
            (false, false) => Self::NotSecret,
        }
    }
}

pub(super) struct TriggerFinder {
    finder: LiteralFinder,
    kinds: Vec<TriggerKind>,
}

impl TriggerFinder {
    pub(super) fn new() -> Result<Self, BuildError> {
        let names = NAMES.iter().map(|name| (*name, TriggerKind::Assignment));
        let bearer = BEARER.iter().map(|name| (*name, TriggerKind::Bearer));
        let addresses = URL_MARKS.iter().map(|mark| (*mark, TriggerKind::Url));
        let others = [
            (web_token::WEB_TOKEN, TriggerKind::WebToken),
            (key_block::BEGIN, TriggerKind::KeyBlock),
        ];
        let (literals, kinds): (Vec<_>, Vec<_>) =
            names.chain(bearer).chain(addresses).chain(others).unzip();
        let finder = LiteralFinder::new(&literals)?;
        Ok(Self { finder, kinds })
    }

    /// The next literal at or after `from`.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<TriggerMatch> {
        let found = self.finder.next(text, from)?;
        let kind = *self.kinds.get(found.pattern().as_usize())?;
        Some(TriggerMatch { start: found.start(), end: found.end(), kind })
    }
}

/// A literal in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TriggerMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    kind: TriggerKind,
}

impl TriggerMatch {
    pub(super) fn begins_key(self) -> bool {
        matches!(self.kind, TriggerKind::KeyBlock)
    }

    /// Runs the detector on the line, which starts at `line_start` of the text.
    pub(super) fn detect(self, line: &[u8], line_start: usize) -> TriggerVerdict {
        let trigger = TriggerSpan { start: self.start - line_start, end: self.end - line_start };
        match self.kind {
            TriggerKind::WebToken => web_token::detect(line, trigger),
            TriggerKind::Assignment => assignment::detect(line, trigger),
            TriggerKind::Bearer => authorization::detect_bearer(line, trigger),
            TriggerKind::Url => url_password::detect(line, trigger),
            TriggerKind::KeyBlock => key_block::detect(line, trigger),
        }
    }
}
