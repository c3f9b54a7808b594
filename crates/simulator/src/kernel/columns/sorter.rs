//! A counting sort of agents by small numbers.

use std::ops::Range;

use multiversion::multiversion;

use crate::kernel::BLOCK;
use crate::kernel::columns::lanes::lane_index;

/// The number of parts of a block sorted side by side, to avoid dependent steps.
const PARTS: usize = 4;

/// The maximum number of keys for which counting is vectorized.
const FEW_MAX: usize = 24;

/// Sorts the agents of a block.
#[derive(Debug, Default)]
pub(crate) struct LaneSorter {
    /// The next position, by key and part.
    next: Vec<[u16; PARTS]>,
    /// The first position by key, plus the end.
    begins: Vec<u16>,
}

impl LaneSorter {
    /// Sorts agents by keys below a limit. The number of agents must be a multiple of four. The
    /// sort is stable.
    pub(crate) fn sort<N: Copy + Into<usize> + PartialEq + TryFrom<usize>>(
        &mut self,
        limit: usize,
        numbers: &[N],
        order: &mut [u16; BLOCK],
    ) {
        let Self { next, begins } = self;
        let split = numbers.len() / PARTS;
        let parts: [&[N]; PARTS] =
            std::array::from_fn(|number| &numbers[number * split..][..split]);
        next.clear();
        next.resize(limit, [0; PARTS]);
        // A slice lets the compiler keep its address in a register.
        let next = next.as_mut_slice();
        if limit <= FEW_MAX {
            for (number, next) in next.iter_mut().enumerate() {
                *next = parts.map(|split| count(split, number));
            }
        } else {
            for index in 0..split {
                for (number, numbers) in parts.iter().enumerate() {
                    next[numbers[index].into()][number] += 1;
                }
            }
        }
        let mut total = 0;
        begins.clear();
        for next in next.iter_mut() {
            begins.push(total);
            for next in next {
                total += std::mem::replace(next, total);
            }
        }
        begins.push(total);
        for index in 0..split {
            for (number, numbers) in parts.iter().enumerate() {
                let next = &mut next[numbers[index].into()][number];
                #[expect(clippy::cast_possible_truncation, reason = "an index in a block")]
                let lane = (number * split + index) as u16;
                order[lane_index(*next)] = lane;
                *next += 1;
            }
        }
    }

    /// Returns the range of agents with a key.
    pub(crate) fn range(&self, number: usize) -> Range<usize> {
        usize::from(self.begins[number])..usize::from(self.begins[number + 1])
    }
}

/// Counts a key.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn count<N: Copy + Into<usize> + PartialEq + TryFrom<usize>>(numbers: &[N], number: usize) -> u16 {
    let Ok(number) = N::try_from(number) else { return 0 };
    numbers.iter().map(|its| u16::from(*its == number)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sort_is_stable() {
        let mut sorter = LaneSorter::default();
        let mut order = [0; BLOCK];
        for (limit, count) in [(1, BLOCK), (2, 256), (7, BLOCK), (300, BLOCK)] {
            let numbers: Vec<u16> =
                (0..).map(|lane| lane % 4099 * 13 % limit).take(count).collect();
            sorter.sort(usize::from(limit), &numbers, &mut order);
            for wanted in 0..limit {
                let lanes = (0..).zip(&numbers).filter(|(_, number)| **number == wanted);
                let expected: Vec<u16> = lanes.map(|(lane, _)| lane).collect();
                assert_eq!(order[sorter.range(usize::from(wanted))], expected);
            }
        }
    }
}
