//! Leases: which processes are alive.
//!
//! Every process that performs work holds a lease under its instance id. A running task names its
//! owner; if the owner's lease has ended, another process may adopt the task.

mod file;
mod memory;

use std::time::Duration;

use polity_model::event::OwnerEpoch;
use polity_model::ids::InstanceId;

pub use file::FileLeases;
pub use memory::MemoryLeases;

use crate::StoreFuture;

/// The leases of all processes that share a store.
pub trait Leases: Send + Sync {
    /// Acquires the lease of an instance. Fails while another process holds it.
    fn acquire(&self, instance: InstanceId) -> StoreFuture<'_, Box<dyn Lease>, LeaseError>;

    /// True if the instance holds its lease.
    fn is_alive(&self, instance: InstanceId) -> StoreFuture<'_, bool, LeaseError>;

    /// The instances that hold their leases.
    fn live_instances(&self) -> StoreFuture<'_, Vec<InstanceId>, LeaseError>;

    /// Removes the remains of ended leases.
    fn remove_ended(&self) -> StoreFuture<'_, (), LeaseError>;
}

/// A lease that this process holds. Dropping it releases the lease.
pub trait Lease: Send + Sync + std::fmt::Debug {
    /// The instance.
    fn instance(&self) -> InstanceId;

    /// The fencing token: a later lease of the same instance never has a lower one.
    fn epoch(&self) -> OwnerEpoch;

    /// Extends the lease. Fails if it has ended: another process may have adopted the tasks.
    fn renew(&self) -> StoreFuture<'_, (), LeaseError>;

    /// The interval at which the lease must be renewed. None if it lasts as long as the process.
    fn renew_interval(&self) -> Option<Duration>;
}

/// The reason why a lease was not acquired, renewed or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another process holds the lease.
    #[error("another process holds the lease of instance {0}")]
    Held(InstanceId),
    /// The lease has ended.
    #[error("the lease of instance {0} has ended")]
    Ended(InstanceId),
    /// The file or the network failed.
    #[error("{0}")]
    Failed(String),
}
