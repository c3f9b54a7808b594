//! Slot pools: how many CLI agents run at once, across all processes that share a store.

mod file;
mod memory;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

pub use file::FileSlotPools;
pub use memory::MemorySlotPools;

use crate::StoreFuture;

/// Pools of concurrency slots, by name.
pub trait SlotPools: Send + Sync {
    /// Takes a free slot of a pool that has `size` slots. None if all are taken.
    fn acquire(&self, pool: &str, size: u32) -> StoreFuture<'_, Option<Slot>, SlotError>;
}

/// A slot that is taken. It is free again when every clone is dropped.
#[derive(Debug, Clone)]
pub struct Slot(Arc<dyn SlotGuard>);

/// The state behind a slot. Dropping it frees the slot.
pub trait SlotGuard: Send + Sync + Debug {
    /// A lock file that a child process can open and lock too, so that the slot stays taken until
    /// the child has ended. None if the pool has no such file.
    fn lock_file(&self) -> Option<&Path> {
        None
    }
}

impl Slot {
    /// A slot that this guard holds.
    pub fn new(guard: impl SlotGuard + 'static) -> Self {
        Self(Arc::new(guard))
    }

    /// The lock file that a child process can share.
    pub fn lock_file(&self) -> Option<&Path> {
        self.0.lock_file()
    }
}

/// A pool that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SlotError(pub String);
