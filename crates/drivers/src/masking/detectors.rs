//! Detects secrets by literals that occur in or before them.
//!
//! One pass finds all literals; only there a detector looks closely. There is one module per kind
//! of secret, and `heuristics` for the rules that they share.

pub(super) mod assignment;
mod authorization;
pub(super) mod heuristics;
pub(super) mod key_block;
mod token;
mod url_password;

use aho_corasick::BuildError;

use self::token::{SHAPES, TokenShape};
use super::literal_finder::LiteralFinder;

/// Parts of names for secrets, as short as possible, in all usual spellings. The rest of the name
/// is checked afterwards.
const NAMES: [&str; 18] = [
    "assw", "ASSW", "assp", "ASSP", "pwd", "PWD", "oken", "OKEN", "ecret", "ECRET", "pi_key",
    "pi-key", "piKey", "pikey", "PI_KEY", "PIKEY", "uthoriz", "UTHORIZ",
];

/// The only authorization scheme that precedes tokens in all kinds of text.
const BEARER: [&str; 2] = ["earer", "EARER"];

/// The separator between scheme and host; it may be escaped in JSON.
const ADDRESSES: [&str; 2] = ["://", r":\/\/"];

/// The kind of secret that a literal announces.
#[derive(Debug, Clone, Copy)]
enum TriggerKind {
    Shape(&'static TokenShape),
    WebToken,
    Assignment,
    Bearer,
    Address,
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

/// Finds the literals.
pub(super) struct TriggerFinder {
    finder: LiteralFinder,
    announced: Vec<TriggerKind>,
}

impl TriggerFinder {
    pub(super) fn new() -> Result<Self, BuildError> {
        let shapes = SHAPES.iter().map(|shape| (shape.literal, TriggerKind::Shape(shape)));
        let names = NAMES.iter().map(|name| (*name, TriggerKind::Assignment));
        let bearer = BEARER.iter().map(|name| (*name, TriggerKind::Bearer));
        let addresses = ADDRESSES.iter().map(|mark| (*mark, TriggerKind::Address));
        let others =
            [(token::WEB_TOKEN, TriggerKind::WebToken), (key_block::BEGIN, TriggerKind::KeyBlock)];
        let (literals, announced): (Vec<_>, Vec<_>) =
            shapes.chain(names).chain(bearer).chain(addresses).chain(others).unzip();
        let finder = LiteralFinder::new(&literals)?;
        Ok(Self { finder, announced })
    }

    /// The next literal at or after `from`.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<TriggerMatch> {
        let found = self.finder.next(text, from)?;
        let announced = *self.announced.get(found.pattern().as_usize())?;
        Some(TriggerMatch { start: found.start(), end: found.end(), announced })
    }
}

/// A literal in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct TriggerMatch {
    pub(super) start: usize,
    pub(super) end: usize,
    announced: TriggerKind,
}

impl TriggerMatch {
    pub(super) fn begins_key(self) -> bool {
        matches!(self.announced, TriggerKind::KeyBlock)
    }

    /// Runs the detector on the line, which starts at `line_start` of the text.
    pub(super) fn look(self, line: &[u8], line_start: usize) -> TriggerVerdict {
        let hit = TriggerSpan { start: self.start - line_start, end: self.end - line_start };
        match self.announced {
            TriggerKind::Shape(shape) => token::look(line, hit, shape),
            TriggerKind::WebToken => token::look_for_web_token(line, hit),
            TriggerKind::Assignment => assignment::look(line, hit),
            TriggerKind::Bearer => authorization::look_for_bearer(line, hit),
            TriggerKind::Address => url_password::look(line, hit),
            TriggerKind::KeyBlock => key_block::look(line, hit),
        }
    }
}
