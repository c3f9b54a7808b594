//! Agents in the order of a small number.

use std::ops::Range;

use super::BLOCK;
use super::pool::place;

/// How many parts of a block are put in order side by side, so that no step waits for another.
const PARTS: usize = 4;

/// Puts agents in order by a small number.
#[derive(Debug)]
pub(super) struct Sorter {
    /// By number and part, where the next agent goes.
    next: Box<[[u16; PARTS]; 256]>,
    /// By number, where its agents end.
    ends: Box<[u16; 256]>,
}

impl Default for Sorter {
    fn default() -> Self {
        Self { next: Box::new([[0; PARTS]; 256]), ends: Box::new([0; 256]) }
    }
}

impl Sorter {
    /// Puts so many agents in order. Those with the same key stay in the order of the block.
    pub(super) fn sort(
        &mut self,
        length: usize,
        key: impl Fn(usize) -> u8,
        order: &mut [u16; BLOCK],
    ) {
        const PART: usize = BLOCK / PARTS;
        let Self { next, ends } = self;
        **next = [[0; PARTS]; 256];
        for index in 0..PART {
            for part in 0..PARTS {
                let lane = part * PART + index;
                if lane < length {
                    next[usize::from(key(lane))][part] += 1;
                }
            }
        }
        let mut total = 0;
        for (next, end) in next.iter_mut().zip(ends.iter_mut()) {
            for next in next {
                total += std::mem::replace(next, total);
            }
            *end = total;
        }
        for index in 0..PART {
            for part in 0..PARTS {
                let lane = part * PART + index;
                if lane < length {
                    let next = &mut next[usize::from(key(lane))][part];
                    #[expect(clippy::cast_possible_truncation, reason = "a place in a block")]
                    let number = lane as u16;
                    order[place(*next)] = number;
                    *next += 1;
                }
            }
        }
    }

    /// Where the agents with a key stand.
    pub(super) fn range(&self, key: u8) -> Range<usize> {
        let begin = key.checked_sub(1).map_or(0, |before| self.ends[usize::from(before)]);
        usize::from(begin)..usize::from(self.ends[usize::from(key)])
    }
}
