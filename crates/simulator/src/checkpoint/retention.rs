//! Retention of checkpoints.

use std::num::NonZeroU64;

/// Returns the turns whose checkpoints can be removed. Keeps the newest `keep` checkpoints. Older
/// turns are divided into at most as many intervals of equal length, and the first checkpoint of
/// each is kept. So there are at most `2 * keep + 1`. The interval length is a power of two: when
/// it grows, every second checkpoint goes and no other is missing.
pub(crate) fn dispensable(turns: &[u64], keep: NonZeroU64) -> Vec<u64> {
    let newest = usize::try_from(keep.get()).unwrap_or(usize::MAX);
    let (Some(last), Some(older)) = (turns.last(), turns.len().checked_sub(newest)) else {
        return Vec::new();
    };
    let stretch = last.div_ceil(keep.get()).max(1).next_power_of_two();
    let mut kept = None;
    let is_kept = |turn: &u64| kept.replace(turn / stretch) != Some(turn / stretch);
    let mut first_of_stretch = is_kept;
    turns[..older].iter().filter(|turn| !first_of_stretch(turn)).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the checkpoints that remain after a number of turns.
    fn left(turns: u64, every: usize, keep: u64) -> Vec<u64> {
        let keep = NonZeroU64::new(keep).unwrap();
        let mut kept = BTreeSet::new();
        for turn in (0..=turns).step_by(every) {
            kept.insert(turn);
            let known: Vec<u64> = kept.iter().copied().collect();
            for turn in dispensable(&known, keep) {
                kept.remove(&turn);
            }
            assert!(kept.len() as u64 <= 2 * keep.get() + 1, "{} at turn {turn}", kept.len());
        }
        kept.into_iter().collect()
    }

    #[test]
    fn keeps_the_newest_and_an_even_spread_of_older_ones() {
        assert_eq!(left(8, 1, 20), (0..=8).collect::<Vec<_>>());
        assert_eq!(left(11, 1, 3), [0, 4, 8, 9, 10, 11]);
        assert_eq!(left(12, 1, 3), [0, 4, 8, 10, 11, 12]);
        assert_eq!(left(13, 1, 3), [0, 8, 11, 12, 13]);
        let many = left(4000, 1, 20);
        assert_eq!(&many[..5], [0, 256, 512, 768, 1024]);
        assert_eq!(many[many.len() - 20..], (3981..=4000).collect::<Vec<_>>());
        assert_eq!(left(50_000, 100, 1), [0, 50_000]);
    }
}
