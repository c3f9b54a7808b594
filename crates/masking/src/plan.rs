//! Plans the spans to mask: line by line, and in pieces of long lines.

use super::MaskMatchers;
use super::detectors::assignment;
use super::detectors::key_block;
use super::masked_span::{self, MaskedSpan, SpanMask};
use super::scan::{KeyBlock, SecretMatch, TextExtent, scan};

/// The maximum length of a line that is scanned as a whole. A stream holds back at most this much.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// The number of bytes scanned beyond a piece, so that secrets in it are found completely. They are
/// scanned again with the next piece.
const LOOKAHEAD_BYTES: usize = 8 * 1024;

/// The limit up to which an incomplete line is shown: the first piece of a long line ends later.
pub(super) const PIECE_BYTES: usize = LINE_BYTES_MAX - LOOKAHEAD_BYTES;

/// The state at the start of the next bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum MaskState {
    #[default]
    Text,
    /// Within a private key of several lines.
    Block(KeyBlock),
    /// Within a secret that continues from the previous piece of a line.
    Secret,
    /// The same, for a private key.
    Key,
}

/// Plans the spans and returns the number of bytes done. An incomplete line remains, unless `ends`.
pub(super) fn plan(
    matchers: &MaskMatchers,
    text: &[u8],
    ends: bool,
    state: &mut MaskState,
    spans: &mut Vec<MaskedSpan>,
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
        let first = spans.len();
        let mut hide = |one: MaskedSpan| spans.push(one.shifted(done));
        let (length, next) = match *state {
            MaskState::Secret | MaskState::Key => rest_of_secret(window, *state, &mut hide),
            MaskState::Text | MaskState::Block(_) => {
                let block = if let MaskState::Block(block) = *state { Some(block) } else { None };
                match whole {
                    Some(length) => {
                        (length, plan_lines(matchers, &window[..length], block, &mut hide))
                    }
                    // Lines of a key are never that long.
                    None => plan_piece(matchers, window, &mut hide),
                }
            }
        };
        masked_span::merge_spans(spans, first);
        *state = next;
        done += length;
    }
    done
}

/// Scans complete lines.
fn plan_lines(
    matchers: &MaskMatchers,
    lines: &[u8],
    block: Option<KeyBlock>,
    hide: &mut impl FnMut(MaskedSpan),
) -> MaskState {
    let block = scan(matchers, lines, TextExtent::Complete, block, |found| {
        if let Some(span) = found.span {
            hide(span);
        }
    });
    block.map_or(MaskState::Text, MaskState::Block)
}

/// Scans a piece of a line. It ends where it cuts no match.
fn plan_piece(
    matchers: &MaskMatchers,
    window: &[u8],
    hide: &mut impl FnMut(MaskedSpan),
) -> (usize, MaskState) {
    let mut all: Vec<(SecretMatch, MaskedSpan)> = Vec::new();
    scan(matchers, window, TextExtent::Complete, None, |found| {
        all.extend(found.span.map(|span| (found, span)));
    });
    all.sort_unstable_by_key(|(found, _)| found.from);
    let mut end = PIECE_BYTES;
    let mut kept = 0;
    while let Some((_, span)) = all.get(kept).filter(|(found, _)| found.from < end) {
        end = end.max(span.end);
        kept += 1;
    }
    let mut next = MaskState::Text;
    for (found, span) in &all[..kept] {
        // A span at the end of the piece may continue, so its tail is not final.
        let replacement = if span.end == end { SpanMask::Mask } else { span.replacement };
        hide(MaskedSpan { replacement, ..*span });
        if found.is_open && span.end == window.len() {
            next = if found.is_key { MaskState::Key } else { MaskState::Secret };
        }
    }
    (end, next)
}

/// Masks the rest of a secret from an earlier piece.
fn rest_of_secret(
    window: &[u8],
    state: MaskState,
    hide: &mut impl FnMut(MaskedSpan),
) -> (usize, MaskState) {
    let (end, is_over) = if state == MaskState::Key {
        key_block::rest_on_line(window)
    } else {
        let end = super::detectors::heuristics::run_end(window, 0, assignment::is_bare);
        (end, end < window.len())
    };
    if end > 0 {
        hide(MaskedSpan::continuation(0, end, false));
    }
    (end, if is_over || end == 0 { MaskState::Text } else { state })
}

/// The length of an incomplete line that is safe to show, and its spans, in any continuation.
pub(super) fn finished_prefix(matchers: &MaskMatchers, line: &[u8]) -> (usize, Vec<MaskedSpan>) {
    if matchers.rules.holds_lines() {
        return (0, Vec::new());
    }
    // A carriage return may be half of the line end, which belongs to no match.
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // The last word may be the start of anything.
    let last_word = line.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    let mut end = PIECE_BYTES.min(last_word).min(matchers.known.incomplete_start(line));
    let mut spans = Vec::new();
    scan(matchers, line, TextExtent::Incomplete, None, |found| {
        if found.is_open {
            end = end.min(found.span.map_or(found.from, |span| span.start));
        }
        spans.extend(found.span);
    });
    masked_span::merge_spans(&mut spans, 0);
    // The next bytes may extend a secret that ends here.
    if let Some(cut) = spans.iter().find(|one| one.start < end && end <= one.end) {
        end = cut.start;
    }
    spans.retain(|one| one.end <= end);
    (end, spans)
}
