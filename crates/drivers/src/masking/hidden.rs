//! Parts of a text that are not shown, and what is shown in their place.

use std::ops::Range;

/// What is shown in place of a secret.
pub(super) const MASK: &str = "***";

/// A secret of at least that many bytes can be told from others by its last four, which say too
/// little of it to be of use. Of a shorter one nothing is shown.
pub const TAIL_SHOWN_FROM_BYTES: usize = 16;

/// How much of a long secret is shown.
const TAIL_BYTES: usize = 4;

/// What stands in place of hidden bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Nothing: they go on where others, which have their mask, ended.
    Nothing,
    /// The mask.
    Mask,
    /// The mask, and the last bytes.
    MaskAndTail,
}

/// Bytes that are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hidden {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) shown: Shown,
}

impl Hidden {
    /// A whole secret.
    pub(super) fn secret(start: usize, end: usize) -> Self {
        let is_long = end - start >= TAIL_SHOWN_FROM_BYTES;
        Self { start, end, shown: if is_long { Shown::MaskAndTail } else { Shown::Mask } }
    }

    /// The same bytes with another beginning of the text.
    pub(super) fn moved(self, by: usize) -> Self {
        Self { start: self.start + by, end: self.end + by, ..self }
    }

    /// Whether this one, which starts no earlier, is shown as one with the other. Those that only
    /// touch are, but for lines of which nothing is shown: they end with their line.
    fn joins(self, earlier: Self) -> bool {
        let is_nothing = [self.shown, earlier.shown].contains(&Shown::Nothing);
        if is_nothing { self.start < earlier.end } else { self.start <= earlier.end }
    }

    /// Both as one. Its tail is shown only if it is no part of a short secret.
    fn joined(self, later: Self) -> Self {
        if later.end <= self.end {
            let is_apart = later.end + TAIL_BYTES <= self.end;
            let shown = match (self.shown, later.shown) {
                (Shown::Nothing, _) => Shown::Nothing,
                (Shown::MaskAndTail, Shown::Nothing | Shown::Mask) if !is_apart => Shown::Mask,
                (Shown::Mask | Shown::MaskAndTail, _) => self.shown,
            };
            return Self { shown, ..self };
        }
        let is_apart = self.end + TAIL_BYTES <= later.end;
        let shown = match (self.shown, later.shown) {
            (_, Shown::Nothing | Shown::Mask) => Shown::Mask,
            (Shown::MaskAndTail, Shown::MaskAndTail) => Shown::MaskAndTail,
            (Shown::Nothing | Shown::Mask, Shown::MaskAndTail) if is_apart => Shown::MaskAndTail,
            (Shown::Nothing | Shown::Mask, Shown::MaskAndTail) => Shown::Mask,
        };
        Self { start: self.start, end: later.end, shown }
    }
}

/// Puts those behind `from` in order, and makes one of those that overlap.
pub(super) fn join(hidden: &mut Vec<Hidden>, from: usize) {
    let Some(new) = hidden.get_mut(from..).filter(|new| new.len() > 1) else { return };
    new.sort_unstable_by_key(|one| (one.start, one.end));
    let mut last = from;
    for index in from + 1..hidden.len() {
        let next = hidden[index];
        if next.joins(hidden[last]) {
            hidden[last] = hidden[last].joined(next);
        } else {
            last += 1;
            hidden[last] = next;
        }
    }
    hidden.truncate(last + 1);
}

/// Writes the text with masks in place of what is hidden, which is in order.
pub(super) fn write_rest(text: &[u8], hidden: &[Hidden], out: &mut Vec<u8>) {
    let mut from = 0;
    for one in hidden {
        out.extend_from_slice(&text[from..one.start]);
        write_mask(&text[one.start..one.end], one.shown, out);
        from = one.end;
    }
    out.extend_from_slice(&text[from..]);
}

fn write_mask(secret: &[u8], shown: Shown, out: &mut Vec<u8>) {
    match shown {
        Shown::Nothing => {}
        Shown::Mask => out.extend_from_slice(MASK.as_bytes()),
        Shown::MaskAndTail => {
            out.extend_from_slice(MASK.as_bytes());
            let tail = &secret[secret.len() - TAIL_BYTES..];
            // A tail that is half an escape or half a character would break the text around it.
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+/=.~".contains(byte);
            if tail.iter().all(is_plain) {
                out.extend_from_slice(tail);
            }
        }
    }
}

/// The text without one secret.
pub(super) fn without(text: &str, secret: Range<usize>) -> String {
    let mut out = Vec::new();
    write_rest(text.as_bytes(), &[Hidden::secret(secret.start, secret.end)], &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_one_and_shows_nothing_of_a_short_secret() {
        let text = b"0123456789abcdefghijklmnopqrstuvwxyz";
        for (spans, expected) in [
            (vec![(2, 6), (8, 10)], "01***67***abcdefghijklmnopqrstuvwxyz"),
            (vec![(8, 10), (2, 9)], "01***abcdefghijklmnopqrstuvwxyz"),
            (vec![(0, 16), (16, 32)], "***stuvwxyz"),
            (vec![(0, 16), (10, 18)], "***ijklmnopqrstuvwxyz"),
            (vec![(0, 18), (12, 16)], "***ijklmnopqrstuvwxyz"),
            (vec![(0, 20), (4, 8)], "***ghijklmnopqrstuvwxyz"),
        ] {
            let mut hidden: Vec<_> =
                spans.iter().map(|&(start, end)| Hidden::secret(start, end)).collect();
            join(&mut hidden, 0);
            let mut out = Vec::new();
            write_rest(text, &hidden, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{spans:?}");
        }
    }
}
