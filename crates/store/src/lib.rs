//! The event journal and its projections.
//!
//! [`Store`] is the contract: commits, reads and the change feed. [`SqliteStore`] implements it on
//! disk, [`MemoryStore`] in memory. [`Leases`] tell which processes are alive, [`SlotPools`] limit
//! how many CLI agents run at once. Every implementation passes the conformance suite in `testkit`.
//!
//! A store decides nothing. It checks that a commit follows the stream, makes it durable and
//! updates the projections in the same transaction.

mod changes;
mod commit;
mod commit_times;
mod error;
mod filter;
mod future;
mod import;
mod leases;
mod memory;
mod projection;
mod removal;
mod slots;
mod sqlite;
mod store;

pub use changes::{ChangeFeed, EventHeader};
pub use commit::{
    BlockingPermit, Commit, CommitError, CommitReceipt, CommitTicket, DedicatedThread,
    PinnedDefinition,
};
pub use commit_times::CommitTimes;
pub use error::StoreError;
pub use filter::{ExecutionFilter, TaskFilter};
pub use future::{StoreFuture, block_on};
pub use import::{ImportError, TaskImport};
pub use leases::{FileLeases, Lease, LeaseError, Leases, MemoryLeases};
pub use memory::MemoryStore;
pub use projection::{CheckpointRow, ExecutionRow, MessageRow, SpendingRow, TaskRow, TaskTree};
pub use removal::{RemovalBlocker, RemovalOutcome};
pub use slots::{FileSlotPools, MemorySlotPools, Slot, SlotError, SlotGuard, SlotPools};
pub use sqlite::{CommitDurability, SqliteStore, StoreAccess, restore};
pub use store::Store;
