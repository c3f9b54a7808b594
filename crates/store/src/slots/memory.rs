//! Slots in memory, for tests and replays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Slot, SlotError, SlotGuard, SlotPools};
use crate::StoreFuture;

/// The slots of one process.
#[derive(Debug, Clone, Default)]
pub struct MemorySlotPools {
    taken: Arc<Mutex<BTreeMap<String, u32>>>,
    is_unlimited: bool,
}

#[derive(Debug)]
struct MemorySlot {
    pools: MemorySlotPools,
    pool: String,
}

impl MemorySlotPools {
    /// Pools that always have a free slot.
    pub fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::default() }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotPools for MemorySlotPools {
    fn acquire(&self, pool: &str, size: u32) -> StoreFuture<'_, Option<Slot>, SlotError> {
        let mut pools = self.taken();
        let taken = pools.entry(pool.to_owned()).or_default();
        if *taken >= size && !self.is_unlimited {
            return StoreFuture::ready(Ok(None));
        }
        *taken += 1;
        drop(pools);
        let slot = MemorySlot { pools: self.clone(), pool: pool.to_owned() };
        StoreFuture::ready(Ok(Some(Slot::new(slot))))
    }
}

impl SlotGuard for MemorySlot {}

impl Drop for MemorySlot {
    fn drop(&mut self) {
        if let Some(taken) = self.pools.taken().get_mut(&self.pool) {
            *taken -= 1;
        }
    }
}
