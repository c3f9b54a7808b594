//! Agents in the order of small numbers.

use std::ops::Range;

use multiversion::multiversion;

use super::BLOCK;
use super::pool::place;

/// How many parts of a block are put in order side by side, so that no step waits for another.
const PARTS: usize = 4;

/// So few numbers are counted one after the other, which is made of vectors.
const FEW: usize = 24;

/// Puts the agents of a block in order.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// By number and part, where the next agent goes.
    next: Vec<[u16; PARTS]>,
    /// By number, where its agents begin; those of the next end them.
    begins: Vec<u16>,
}

impl Sorter {
    /// Puts the first agents of a block in order, by numbers below a limit; there must be a multiple
    /// of four of them. Those with the same number stay in their order.
    pub(super) fn sort<N: Copy + Into<usize> + PartialEq + TryFrom<usize>>(
        &mut self,
        limit: usize,
        numbers: &[N],
        order: &mut [u16; BLOCK],
    ) {
        let Self { next, begins } = self;
        let part = numbers.len() / PARTS;
        let parts: [&[N]; PARTS] = std::array::from_fn(|number| &numbers[number * part..][..part]);
        next.clear();
        next.resize(limit, [0; PARTS]);
        // Where the table stands is known from here on, however often it is written to.
        let next = next.as_mut_slice();
        if limit <= FEW {
            for (number, next) in next.iter_mut().enumerate() {
                *next = parts.map(|part| count(part, number));
            }
        } else {
            for index in 0..part {
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
        for index in 0..part {
            for (number, numbers) in parts.iter().enumerate() {
                let next = &mut next[numbers[index].into()][number];
                #[expect(clippy::cast_possible_truncation, reason = "a place in a block")]
                let lane = (number * part + index) as u16;
                order[place(*next)] = lane;
                *next += 1;
            }
        }
    }

    /// Where the agents with a number stand.
    pub(super) fn range(&self, number: usize) -> Range<usize> {
        usize::from(self.begins[number])..usize::from(self.begins[number + 1])
    }
}

/// How often a number is there.
#[multiversion(targets("x86_64+avx2+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn count<N: Copy + Into<usize> + PartialEq + TryFrom<usize>>(numbers: &[N], number: usize) -> u16 {
    let Ok(number) = N::try_from(number) else { return 0 };
    numbers.iter().map(|its| u16::from(*its == number)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_the_same_number_stay_in_their_order() {
        let mut sorter = Sorter::default();
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
