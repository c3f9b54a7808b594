//! Random numbers as a pure function of seed, agent, tick and purpose.
//!
//! The generator is Philox4x32 with seven rounds, by Salmon, Moraes, Dror and Shaw: the smallest
//! number of rounds that passes every test of `BigCrush`. It maps a counter and a key to random
//! bits and has no state. So an agent's numbers do not depend on other agents or on evaluation
//! order.

use polity_statechart::Chart;

use crate::kernel::LANES;

/// The seed of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimulationSeed(pub u64);

/// The key of an agent's random draws. Agents with the same key draw the same numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrawKey(pub u64);

/// The purpose of a draw. Each purpose of an agent and tick has its own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrawPurpose {
    /// The choice of a trigger, if guards leave no spare number.
    Trigger,
    /// The draws of guards and actions in a tick, and the choice of a trigger with a spare number.
    Guard,
    /// The draws of guards and actions of a trigger fired for every agent.
    Round,
    /// The draws of the exit actions of a removed agent.
    Exit,
}

const ROUNDS: usize = 7;
const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const LOW: u64 = 0xFFFF_FFFF;

/// The number of draws per counter.
pub(crate) const DRAWS_PER_BLOCK: usize = 4;

/// The draw that decides on an agent's trigger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TriggerDraw {
    /// A draw of its own.
    #[default]
    Own,
    /// The last draw of the first counter, if guards and actions leave it unused. That saves a
    /// counter.
    Spare,
}

impl TriggerDraw {
    /// The index of the spare draw.
    pub(crate) const LAST: usize = DRAWS_PER_BLOCK - 1;

    /// Chooses the draw for a chart. If nothing else is drawn, a spare draw saves nothing.
    pub(crate) fn of(chart: &Chart) -> Self {
        match chart.max_draws() as usize {
            1..=Self::LAST => Self::Spare,
            0 | DRAWS_PER_BLOCK.. => Self::Own,
        }
    }
}

/// Two to the power of -32, which maps 32 random bits to [0, 1).
const SCALE: f64 = 1.0 / 4_294_967_296.0;

/// The random number generator of a simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhiloxRng {
    seed: [u32; 2],
}

/// The draws of one purpose and counter for a group of agents.
pub(crate) type DrawBlock = [[u32; LANES]; DRAWS_PER_BLOCK];

impl PhiloxRng {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
    pub(crate) fn new(seed: SimulationSeed) -> Self {
        Self { seed: [seed.0 as u32, (seed.0 >> 32) as u32] }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half of each word is what counts")]
    pub(crate) fn draw(self, key: u64, tick: u32, purpose: DrawPurpose, index: u32) -> u32 {
        let (block, word) = counter_of(index);
        let mut words = counter(key, tick, purpose, block);
        let mut round_key = self.seed;
        for _ in 0..ROUNDS {
            words = round(words, round_key);
            round_key = next(round_key);
        }
        words[word] as u32
    }

    /// Fills the first words of a counter for many agents. Each word occupies 64 bits, because that
    /// is how processors multiply vectors of 32-bit words.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the low half of each word is what counts")]
    pub(crate) fn fill<const WORDS: usize>(
        self,
        keys: &[u64; LANES],
        tick: u32,
        purpose: DrawPurpose,
        block: u32,
        mut out: [&mut [u32; LANES]; WORDS],
    ) {
        const STEP: usize = 16;
        for base in (0..LANES).step_by(STEP) {
            let [mut a, mut b, mut c, mut d] = [[0_u64; STEP]; 4];
            for lane in 0..STEP {
                [a[lane], b[lane], c[lane], d[lane]] =
                    counter(keys[base + lane], tick, purpose, block);
            }
            let mut round_key = self.seed;
            for _ in 0..ROUNDS {
                for lane in 0..STEP {
                    [a[lane], b[lane], c[lane], d[lane]] =
                        round([a[lane], b[lane], c[lane], d[lane]], round_key);
                }
                round_key = next(round_key);
            }
            for (out, words) in out.iter_mut().zip([a, b, c, d]) {
                for lane in 0..STEP {
                    out[base + lane] = words[lane] as u32;
                }
            }
        }
    }
}

/// Returns the counter of a draw index, and the word within it.
#[inline]
pub(crate) fn counter_of(index: u32) -> (u32, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "it is a small number")]
    let count = DRAWS_PER_BLOCK as u32;
    (index / count, (index % count) as usize)
}

/// Converts a draw to a number in [0, 1).
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
pub(crate) fn unit(draw: u32) -> f64 {
    f64::from(draw) * SCALE
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn counter(key: u64, tick: u32, purpose: DrawPurpose, block: u32) -> [u64; 4] {
    let purpose: u32 = match purpose {
        DrawPurpose::Trigger => 0,
        DrawPurpose::Guard => 1,
        DrawPurpose::Round => 2,
        DrawPurpose::Exit => 3,
    };
    [key & LOW, key >> 32, u64::from(tick), u64::from(purpose << 24 | block)]
}

/// The upper halves of the words are ignored.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn round([a, b, c, d]: [u64; 4], key: [u32; 2]) -> [u64; 4] {
    let left = (a & LOW).wrapping_mul(MULTIPLIERS[0]);
    let right = (c & LOW).wrapping_mul(MULTIPLIERS[1]);
    [(right >> 32) ^ b ^ u64::from(key[0]), right, (left >> 32) ^ d ^ u64::from(key[1]), left]
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it must be compiled with its caller's features")]
fn next(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors that the authors of Philox publish for `philox4x32` with seven rounds.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "the low half of each word is what counts")]
    fn matches_published_test_vectors() {
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]),
            (
                [0xffff_ffff; 4],
                [0xffff_ffff; 2],
                [0x5207_ddc2, 0x4516_5e59, 0x4d8e_e751, 0x8c52_f662],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0x4dfc_caba, 0x190a_87f0, 0xc473_62ba, 0xb6b5_242a],
            ),
        ] {
            let mut words: [u64; 4] = counter;
            let mut key: [u32; 2] = key;
            for _ in 0..ROUNDS {
                words = round(words, key);
                key = super::next(key);
            }
            assert_eq!(words.map(|word| word as u32), expected);
        }
    }

    /// These values must never change: runs are repeated from their seeds.
    #[test]
    fn draws_of_a_seed_are_fixed() {
        let philox = PhiloxRng::new(SimulationSeed(42));
        let draws: Vec<u32> =
            (0..5).map(|index| philox.draw(7, 3, DrawPurpose::Guard, index)).collect();
        assert_eq!(
            draws,
            [1_907_521_900, 107_464_826, 1_586_252_031, 4_107_232_089, 2_234_140_702]
        );
        assert_eq!(philox.draw(7, 3, DrawPurpose::Trigger, 0), 3_207_086_612);
        assert_eq!(philox.draw(7, 3, DrawPurpose::Round, 0), 2_525_299_280);
        assert_eq!(philox.draw(1 << 40, 3, DrawPurpose::Guard, 0), 4_243_938_067);
    }

    #[test]
    fn fill_matches_single_draws() {
        let philox = PhiloxRng::new(SimulationSeed(0x0123_4567_89ab_cdef));
        let mut keys = [0; LANES];
        for (key, number) in keys.iter_mut().zip(0_u64..) {
            *key = number << (number % 40);
        }
        let mut out = [[0; LANES]; DRAWS_PER_BLOCK];
        philox.fill(&keys, 9, DrawPurpose::Guard, 2, out.each_mut());
        for (lane, key) in keys.into_iter().enumerate() {
            for (index, draws) in (8..12).zip(out) {
                assert_eq!(draws[lane], philox.draw(key, 9, DrawPurpose::Guard, index));
            }
        }
    }
}
