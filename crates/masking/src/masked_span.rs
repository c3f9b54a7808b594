//! Masked spans of a text, and their replacement.

use std::ops::Range;

/// The replacement of a secret.
pub(super) const MASK: &str = "***";

/// The minimum length of secrets whose last four bytes are shown, to tell them apart.
pub const TAIL_SHOWN_FROM_BYTES: usize = 16;

/// The number of bytes shown of a long secret.
const TAIL_BYTES: usize = 4;

/// The replacement of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanMask {
    /// Nothing: it continues an earlier span, which has the mask.
    Nothing,
    Mask,
    MaskAndTail,
}

/// A span of bytes to mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MaskedSpan {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) replacement: SpanMask,
    /// True if the span ends with the end of its line. The next line may arrive later.
    pub(super) ends_line: bool,
}

impl MaskedSpan {
    /// The span of a complete secret.
    pub(super) fn secret(start: usize, end: usize) -> Self {
        let is_long = end - start >= TAIL_SHOWN_FROM_BYTES;
        Self {
            start,
            end,
            replacement: if is_long { SpanMask::MaskAndTail } else { SpanMask::Mask },
            ends_line: false,
        }
    }

    /// A span without a mask, because it continues an earlier one.
    pub(super) fn continuation(start: usize, end: usize, ends_line: bool) -> Self {
        Self { start, end, replacement: SpanMask::Nothing, ends_line }
    }

    pub(super) fn shifted(self, by: usize) -> Self {
        Self { start: self.start + by, end: self.end + by, ..self }
    }

    /// True if this later span is merged with the earlier one. Adjacent spans are merged, except
    /// those without a mask and those on two lines.
    fn merges_with(self, earlier: Self) -> bool {
        let is_nothing = [self.replacement, earlier.replacement].contains(&SpanMask::Nothing);
        let are_apart = is_nothing || earlier.ends_line;
        if are_apart { self.start < earlier.end } else { self.start <= earlier.end }
    }

    /// Merges two spans. The tail is shown only if it is not part of a short secret.
    fn merged(self, later: Self) -> Self {
        if later.end <= self.end {
            let is_apart = later.end + TAIL_BYTES <= self.end;
            let replacement = match (self.replacement, later.replacement) {
                (SpanMask::Nothing, _) => SpanMask::Nothing,
                (SpanMask::MaskAndTail, SpanMask::Nothing | SpanMask::Mask) if !is_apart => {
                    SpanMask::Mask
                }
                (SpanMask::Mask | SpanMask::MaskAndTail, _) => self.replacement,
            };
            return Self { replacement, ..self };
        }
        let is_apart = self.end + TAIL_BYTES <= later.end;
        let replacement = match (self.replacement, later.replacement) {
            (_, SpanMask::Nothing | SpanMask::Mask) => SpanMask::Mask,
            (SpanMask::MaskAndTail, SpanMask::MaskAndTail) => SpanMask::MaskAndTail,
            (SpanMask::Nothing | SpanMask::Mask, SpanMask::MaskAndTail) if is_apart => {
                SpanMask::MaskAndTail
            }
            (SpanMask::Nothing | SpanMask::Mask, SpanMask::MaskAndTail) => SpanMask::Mask,
        };
        Self { start: self.start, end: later.end, replacement, ends_line: later.ends_line }
    }
}

/// Sorts the spans after `from` and merges overlapping ones.
pub(super) fn merge_spans(spans: &mut Vec<MaskedSpan>, from: usize) {
    let Some(new) = spans.get_mut(from..).filter(|new| new.len() > 1) else { return };
    new.sort_unstable_by_key(|one| (one.start, one.end));
    let mut last = from;
    for index in from + 1..spans.len() {
        let next = spans[index];
        if next.merges_with(spans[last]) {
            spans[last] = spans[last].merged(next);
        } else {
            last += 1;
            spans[last] = next;
        }
    }
    spans.truncate(last + 1);
}

/// Writes the text with all spans masked. The spans are sorted.
pub(super) fn write_masked(text: &[u8], spans: &[MaskedSpan], out: &mut Vec<u8>) {
    let mut from = 0;
    for one in spans {
        out.extend_from_slice(&text[from..one.start]);
        write_mask(&text[one.start..one.end], one.replacement, out);
        from = one.end;
    }
    out.extend_from_slice(&text[from..]);
}

fn write_mask(secret: &[u8], replacement: SpanMask, out: &mut Vec<u8>) {
    match replacement {
        SpanMask::Nothing => {}
        SpanMask::Mask => out.extend_from_slice(MASK.as_bytes()),
        SpanMask::MaskAndTail => {
            out.extend_from_slice(MASK.as_bytes());
            let tail = &secret[secret.len() - TAIL_BYTES..];
            // A tail with half an escape or half a character would break the text.
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+/=.~".contains(byte);
            if tail.iter().all(is_plain) {
                out.extend_from_slice(tail);
            }
        }
    }
}

/// Masks one secret in a text.
pub(super) fn mask_range(text: &str, secret: Range<usize>) -> String {
    let mut out = Vec::new();
    write_masked(text.as_bytes(), &[MaskedSpan::secret(secret.start, secret.end)], &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_spans_hide_short_secrets() {
        let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
        for (spans, expected) in [
            (vec![(2, 6), (8, 10)], "01***67***abcdefghijklmnopqrstuvwxyz"),
            (vec![(8, 10), (2, 9)], "01***abcdefghijklmnopqrstuvwxyz"),
            (vec![(0, 16), (16, 32)], "***stuvwxyz"),
            (vec![(0, 16), (10, 18)], "***ijklmnopqrstuvwxyz"),
            (vec![(0, 18), (12, 16)], "***ijklmnopqrstuvwxyz"),
            (vec![(0, 20), (4, 8)], "***ghijklmnopqrstuvwxyz"),
        ] {
            let mut span: Vec<_> =
                spans.iter().map(|&(start, end)| MaskedSpan::secret(start, end)).collect();
            merge_spans(&mut span, 0);
            let mut out = Vec::new();
            write_masked(text, &span, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{spans:?}");
        }
    }
}
