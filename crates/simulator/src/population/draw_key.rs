//! The draw keys of agents.

use sha2::{Digest as _, Sha256};

use crate::kernel::DrawKey;

/// Returns the draw key of an agent: the first eight bytes of the SHA-256 of the turn in which it
/// was added (little-endian) and its name. So an agent's draws do not depend on other agents, and a
/// later agent with the same name draws other numbers.
pub(crate) fn draw_key(name: &str, turn_added: u64) -> DrawKey {
    let hash = Sha256::new().chain_update(turn_added.to_le_bytes()).chain_update(name).finalize();
    let (key, _) = hash.split_at(size_of::<u64>());
    DrawKey(key.iter().rev().fold(0, |key, byte| key << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These values must never change: runs are repeated from their seeds.
    #[test]
    fn draw_keys_are_fixed() {
        for (name, turn, key) in [
            ("ada", 0, 0xa3ba_4d44_c3c2_3e7d),
            ("ada", 3, 0xddfc_d781_c81e_7376),
            ("reader_1", 0, 0x00c4_8c6a_7996_3df5),
            ("Ada Lovelace", 1 << 40, 0xaec7_66ef_c8be_4303),
        ] {
            assert_eq!(draw_key(name, turn), DrawKey(key), "{name} {turn}");
        }
    }
}
