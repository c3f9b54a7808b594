//! Leases in memory, for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use polity_model::event::OwnerEpoch;
use polity_model::ids::InstanceId;

use super::{Lease, LeaseError, Leases};
use crate::StoreFuture;

/// Leases that end when they are dropped or expired by a test.
#[derive(Debug, Clone, Default)]
pub struct MemoryLeases {
    entries: Arc<Mutex<BTreeMap<InstanceId, LeaseEntry>>>,
}

#[derive(Debug, Clone, Copy)]
struct LeaseEntry {
    epoch: OwnerEpoch,
    is_held: bool,
}

#[derive(Debug)]
struct MemoryLease {
    leases: MemoryLeases,
    instance: InstanceId,
    epoch: OwnerEpoch,
}

impl MemoryLeases {
    /// Ends a lease, as a process that stops renewing does.
    pub fn expire(&self, instance: InstanceId) {
        if let Some(entry) = self.entries().get_mut(&instance) {
            entry.is_held = false;
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<InstanceId, LeaseEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_acquire(&self, instance: InstanceId) -> Result<MemoryLease, LeaseError> {
        let mut entries = self.entries();
        let before = entries.get(&instance);
        if before.is_some_and(|entry| entry.is_held) {
            return Err(LeaseError::Held(instance));
        }
        let epoch = before.map_or(OwnerEpoch::default(), |entry| entry.epoch).next();
        entries.insert(instance, LeaseEntry { epoch, is_held: true });
        drop(entries);
        Ok(MemoryLease { leases: self.clone(), instance, epoch })
    }
}

impl Leases for MemoryLeases {
    fn acquire(&self, instance: InstanceId) -> StoreFuture<'_, Box<dyn Lease>, LeaseError> {
        StoreFuture::ready(self.try_acquire(instance).map(|lease| Box::new(lease) as _))
    }

    fn is_alive(&self, instance: InstanceId) -> StoreFuture<'_, bool, LeaseError> {
        StoreFuture::ready(Ok(self.entries().get(&instance).is_some_and(|entry| entry.is_held)))
    }

    fn live_instances(&self) -> StoreFuture<'_, Vec<InstanceId>, LeaseError> {
        let entries = self.entries();
        let held = entries.iter().filter(|(_, entry)| entry.is_held);
        StoreFuture::ready(Ok(held.map(|(instance, _)| *instance).collect()))
    }

    fn remove_ended(&self) -> StoreFuture<'_, (), LeaseError> {
        StoreFuture::ready(Ok(()))
    }
}

impl Lease for MemoryLease {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn epoch(&self) -> OwnerEpoch {
        self.epoch
    }

    fn renew(&self) -> StoreFuture<'_, (), LeaseError> {
        let entry = self.leases.entries().get(&self.instance).copied();
        let is_ours = entry.is_some_and(|entry| entry.is_held && entry.epoch == self.epoch);
        StoreFuture::ready(if is_ours { Ok(()) } else { Err(LeaseError::Ended(self.instance)) })
    }

    fn renew_interval(&self) -> Option<Duration> {
        None
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        if let Some(entry) = self.leases.entries().get_mut(&self.instance)
            && entry.epoch == self.epoch
        {
            entry.is_held = false;
        }
    }
}
