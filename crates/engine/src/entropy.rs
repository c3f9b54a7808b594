//! Randomness for decisions: one seed per decision, and a generator over it.

/// A source of fresh seeds.
pub trait EntropySource: Send + Sync {
    /// Returns sixteen unpredictable bytes.
    fn seed(&self) -> [u8; 16];
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl EntropySource for SystemEntropy {
    fn seed(&self) -> [u8; 16] {
        let mut seed = [0; 16];
        // Without randomness, ids would repeat and overwrite each other's records.
        if let Err(error) = getrandom::fill(&mut seed) {
            panic!("the operating system gives no random bytes: {error}");
        }
        seed
    }
}

/// A deterministic generator: equal seeds give equal numbers (xoroshiro128++).
#[derive(Debug, Clone)]
pub struct Entropy {
    state: [u64; 2],
}

impl Entropy {
    /// Creates a generator from a seed.
    pub fn from_seed(seed: [u8; 16]) -> Self {
        let seed = u128::from_be_bytes(seed);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
        let (high, low) = ((seed >> 64) as u64, seed as u64);
        // All zeros is the one state that the generator cannot leave.
        Self { state: [high, if high | low == 0 { 1 } else { low }] }
    }

    fn next(&mut self) -> u64 {
        let [a, b] = self.state;
        let drawn = a.wrapping_add(b).rotate_left(17).wrapping_add(a);
        let mixed = a ^ b;
        self.state = [a.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28)];
        drawn
    }

    /// Draws sixteen bytes for an id.
    pub fn id_bytes(&mut self) -> [u8; 16] {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        ((high << 64) | low).to_be_bytes()
    }

    /// Draws a number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_below_one() {
        for seed in [[0; 16], [1; 16], [0xff; 16]] {
            let (mut a, mut b) = (Entropy::from_seed(seed), Entropy::from_seed(seed));
            assert_eq!(a.id_bytes(), b.id_bytes());
            let first = a.id_bytes();
            assert_ne!(first, a.id_bytes());
            for _ in 0..1000 {
                let fraction = a.fraction();
                assert!((0.0..1.0).contains(&fraction), "{fraction}");
            }
        }
    }
}
