//! The liveness of task owners, and the lease of this process.

use std::collections::BTreeMap;
use std::sync::Arc;

use polity_model::ids::InstanceId;
use polity_store::{Lease, Leases};

/// True if a task has an owner that is alive. An owner whose lease cannot be read counts as alive:
/// no task is taken from a live owner.
pub async fn is_owner_alive(leases: &dyn Leases, owner: Option<InstanceId>) -> bool {
    let Some(instance) = owner else { return false };
    leases.is_alive(instance).await.unwrap_or_else(|error| {
        tracing::warn!(%instance, %error, "cannot check whether a process is alive");
        true
    })
}

/// Checks owners, each once.
pub(super) struct OwnerLiveness<'a> {
    leases: &'a dyn Leases,
    checked: BTreeMap<InstanceId, bool>,
}

impl<'a> OwnerLiveness<'a> {
    pub(super) fn new(leases: &'a dyn Leases) -> Self {
        Self { leases, checked: BTreeMap::new() }
    }

    /// Checks the owners of rows in advance.
    pub(super) async fn of(leases: &'a dyn Leases, owners: Vec<Option<InstanceId>>) -> Self {
        let mut liveness = Self::new(leases);
        for owner in owners {
            liveness.check(owner).await;
        }
        liveness
    }

    /// True if the owner is alive.
    pub(super) async fn check(&mut self, owner: Option<InstanceId>) -> bool {
        let Some(instance) = owner else { return false };
        if let Some(is_alive) = self.checked.get(&instance) {
            return *is_alive;
        }
        let is_alive = is_owner_alive(self.leases, owner).await;
        self.checked.insert(instance, is_alive);
        is_alive
    }

    /// True if the owner was checked and is alive.
    pub(super) fn is_alive(&self, owner: Option<InstanceId>) -> bool {
        owner.is_some_and(|owner| self.checked.get(&owner) == Some(&true))
    }
}

/// Renews the lease of this process, if it has to be.
pub(super) async fn keep_lease(lease: Arc<dyn Lease>) {
    let Some(interval) = lease.renew_interval() else { return };
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = lease.renew().await {
            // If another process adopts a task, its new epoch fences commits from here.
            tracing::warn!(%error, "the lease of this process could not be renewed");
        }
    }
}
