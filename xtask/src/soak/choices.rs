//! Random choices that a seed repeats.

use std::hash::{BuildHasher, RandomState};

/// A generator of random numbers (`SplitMix64`).
#[derive(Debug)]
pub(super) struct Choices(u64);

impl Choices {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (mixed ^ (mixed >> 31)) % (most - least + 1)
    }
}

/// A seed that differs in each run.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_repeats_choices_within_their_range() {
        let draw = |seed| {
            let mut choices = Choices::new(seed);
            (0..100).map(|_| choices.between(3, 5)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|number| (3..=5).contains(number)));
        assert!([3, 4, 5].iter().all(|number| draw(1).contains(number)));
    }
}
