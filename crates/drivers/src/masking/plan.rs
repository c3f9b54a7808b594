//! Which bytes are hidden: line by line, and in pieces of lines that are too long.

use super::Parts;
use super::assignment;
use super::hidden::{self, Hidden, Shown};
use super::key_block;
use super::scan::{Block, Found, scan};

/// The longest line that is judged as a whole, in bytes with its end. This much of a stream is held
/// back at most.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// How many bytes behind the end of a piece are looked at, so that what begins in it is seen to its
/// end. They are looked at again as the beginning of the next piece.
const LOOKAHEAD_BYTES: usize = 8 * 1024;

/// A partial line is shown up to here at most, because the piece of a long line that it may become
/// ends no earlier.
pub(super) const PIECE_BYTES: usize = LINE_BYTES_MAX - LOOKAHEAD_BYTES;

/// What the next bytes go on with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Anything.
    #[default]
    Text,
    /// Lines of a private key.
    Block(Block),
    /// A secret that did not end with the piece of a line that it began in.
    Secret,
    /// The same, for a private key.
    Key,
}

/// Hides what is secret in the text, and says how much of it is done. The rest has no end yet; there
/// is none if the text `ends`.
pub(super) fn plan(
    parts: &Parts,
    text: &[u8],
    ends: bool,
    state: &mut State,
    hidden: &mut Vec<Hidden>,
) -> usize {
    let mut done = 0;
    while done < text.len() {
        let window = &text[done..text.len().min(done + LINE_BYTES_MAX)];
        let lines = memchr::memrchr(b'\n', window).map(|end| end + 1);
        let is_piece = lines.is_none() && window.len() == LINE_BYTES_MAX;
        let whole = lines.or_else(|| (ends && !is_piece).then_some(window.len()));
        if whole.is_none() && !is_piece {
            return done;
        }
        let first = hidden.len();
        let mut hide = |one: Hidden| hidden.push(one.moved(done));
        let (length, next) = match *state {
            State::Secret | State::Key => rest_of_secret(window, *state, &mut hide),
            State::Text | State::Block(_) => {
                let block = if let State::Block(block) = *state { Some(block) } else { None };
                match whole {
                    Some(length) => (length, lines_of(parts, &window[..length], block, &mut hide)),
                    // No line of a key is that long.
                    None => piece_of(parts, window, &mut hide),
                }
            }
        };
        hidden::join(hidden, first);
        *state = next;
        done += length;
    }
    done
}

/// Some lines, all with their ends.
fn lines_of(
    parts: &Parts,
    lines: &[u8],
    block: Option<Block>,
    hide: &mut impl FnMut(Hidden),
) -> State {
    let block = scan(parts, lines, block, |found| {
        if let Some(hidden) = found.hidden {
            hide(hidden);
        }
    });
    block.map_or(State::Text, State::Block)
}

/// A piece of a line. It ends where nothing that was found is cut.
fn piece_of(parts: &Parts, window: &[u8], hide: &mut impl FnMut(Hidden)) -> (usize, State) {
    let mut all: Vec<(Found, Hidden)> = Vec::new();
    scan(parts, window, None, |found| all.extend(found.hidden.map(|hidden| (found, hidden))));
    all.sort_unstable_by_key(|(found, _)| found.from);
    let mut end = PIECE_BYTES;
    let mut kept = 0;
    while let Some((_, hidden)) = all.get(kept).filter(|(found, _)| found.from < end) {
        end = end.max(hidden.end);
        kept += 1;
    }
    let mut next = State::Text;
    for (found, hidden) in &all[..kept] {
        // What ends with the piece may go on in the next one, and then this is not its tail.
        let shown = if hidden.end == end { Shown::Mask } else { hidden.shown };
        hide(Hidden { shown, ..*hidden });
        if found.is_open && hidden.end == window.len() {
            next = if found.is_key { State::Key } else { State::Secret };
        }
    }
    (end, next)
}

/// What is left of a secret that began in an earlier piece.
fn rest_of_secret(window: &[u8], state: State, hide: &mut impl FnMut(Hidden)) -> (usize, State) {
    let (end, is_over) = if state == State::Key {
        key_block::rest_on_line(window)
    } else {
        let end = super::judgement::run_end(window, 0, assignment::is_bare);
        (end, end < window.len())
    };
    if end > 0 {
        hide(Hidden { start: 0, end, shown: Shown::Nothing });
    }
    (end, if is_over || end == 0 { State::Text } else { state })
}

/// How much of a line that goes on can be shown already, and what is hidden in it. Whatever follows
/// changes nothing of it.
pub(super) fn settled(parts: &Parts, line: &[u8]) -> (usize, Vec<Hidden>) {
    if parts.own.are_unbounded() {
        return (0, Vec::new());
    }
    // The last word may be the beginning of anything.
    let last_word = line.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    let mut end = PIECE_BYTES.min(last_word).min(parts.known.unfinished_in(line));
    let mut hidden = Vec::new();
    scan(parts, line, None, |found| {
        if found.is_open {
            end = end.min(found.hidden.map_or(found.from, |hidden| hidden.start));
        }
        hidden.extend(found.hidden);
    });
    hidden::join(&mut hidden, 0);
    // What follows may be one with a secret that ends here.
    if let Some(cut) = hidden.iter().find(|one| one.start < end && end <= one.end) {
        end = cut.start;
    }
    hidden.retain(|one| one.end <= end);
    (end, hidden)
}
