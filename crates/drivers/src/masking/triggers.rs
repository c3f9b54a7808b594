//! Literals that stand in or before everything that looks like a secret. One pass over the text
//! finds them all, and nothing is looked at closely where there is none.

use aho_corasick::BuildError;

use super::finder::Finder;
use super::token::{SHAPES, Shape};
use super::{address, assignment, credentials, key_block, token};

/// Parts of names that secrets are given, as short as they are telling, in the ways in which they
/// are written. What stands around them is looked at afterwards.
const NAMES: [&str; 18] = [
    "assw", "ASSW", "assp", "ASSP", "pwd", "PWD", "oken", "OKEN", "ecret", "ECRET", "pi_key",
    "pi-key", "piKey", "pikey", "PI_KEY", "PIKEY", "uthoriz", "UTHORIZ",
];

/// The one scheme that stands before a token in all kinds of text.
const BEARER: [&str; 2] = ["earer", "EARER"];

/// What stands between a scheme and an address; within JSON it may be escaped.
const ADDRESSES: [&str; 2] = ["://", r":\/\/"];

/// What a literal announces.
#[derive(Debug, Clone, Copy)]
enum Announced {
    Shape(&'static Shape),
    WebToken,
    Assignment,
    Bearer,
    Address,
    KeyBlock,
}

/// Where a literal is in a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a close look at a line has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No secret, whatever follows on the line.
    Ordinary,
    /// No secret so far, but one could begin here when the line goes on.
    Open { from: usize },
    /// A secret. An open one has no end yet: more of it may follow.
    Secret { start: usize, end: usize, open: bool },
    /// A private key. Of an open one more may follow, on the next lines too.
    Key { start: usize, end: usize, open: bool },
}

/// Finds the literals.
pub(super) struct Triggers {
    finder: Finder,
    announced: Vec<Announced>,
}

impl Triggers {
    pub(super) fn new() -> Result<Self, BuildError> {
        let shapes = SHAPES.iter().map(|shape| (shape.literal, Announced::Shape(shape)));
        let names = NAMES.iter().map(|name| (*name, Announced::Assignment));
        let bearer = BEARER.iter().map(|name| (*name, Announced::Bearer));
        let addresses = ADDRESSES.iter().map(|mark| (*mark, Announced::Address));
        let others =
            [(token::WEB_TOKEN, Announced::WebToken), (key_block::BEGIN, Announced::KeyBlock)];
        let (literals, announced): (Vec<_>, Vec<_>) =
            shapes.chain(names).chain(bearer).chain(addresses).chain(others).unzip();
        let finder = Finder::new(&literals)?;
        Ok(Self { finder, announced })
    }

    /// The next literal in the text from a place on.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<Trigger> {
        let found = self.finder.next(text, from)?;
        let announced = *self.announced.get(found.pattern().as_usize())?;
        Some(Trigger { start: found.start(), end: found.end(), announced })
    }
}

/// A literal in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trigger {
    pub(super) start: usize,
    pub(super) end: usize,
    announced: Announced,
}

impl Trigger {
    pub(super) fn begins_key(self) -> bool {
        matches!(self.announced, Announced::KeyBlock)
    }

    /// Looks closely at what is announced, in a line that starts at `line_start` of the text.
    pub(super) fn look(self, line: &[u8], line_start: usize) -> Verdict {
        let hit = Hit { start: self.start - line_start, end: self.end - line_start };
        match self.announced {
            Announced::Shape(shape) => token::look(line, hit, shape),
            Announced::WebToken => token::look_for_web_token(line, hit),
            Announced::Assignment => assignment::look(line, hit),
            Announced::Bearer => credentials::look_for_bearer(line, hit),
            Announced::Address => address::look(line, hit),
            Announced::KeyBlock => key_block::look(line, hit),
        }
    }
}
