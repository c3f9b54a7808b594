//! Read queries that every front end shares.

mod agent_status;
mod executions;
mod output;
mod pinned_access;
mod review_path;
mod reviews;
mod schedules;
mod sessions;
mod task_diff;
mod tasks;
mod workflow_progress;

use std::fmt;
use std::sync::Arc;

use polity_store::{Leases, Store};

pub use agent_status::{AgentStatus, PoolStatus};
pub use output::{OutputPart, OutputRange, OutputStream, read_output};
pub use pinned_access::PinnedAccess;
pub use schedules::{DueTimeRow, ScheduleView, next_starts};
pub use sessions::SessionSummary;
pub use task_diff::TaskDiff;

/// Queries on the store of a home, and on the processes that work there.
#[derive(Clone)]
pub struct HomeQueries {
    store: Arc<dyn Store>,
    leases: Arc<dyn Leases>,
}

impl fmt::Debug for HomeQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeQueries").finish_non_exhaustive()
    }
}

impl HomeQueries {
    /// Queries on a store and the leases of live processes.
    pub fn new(store: Arc<dyn Store>, leases: Arc<dyn Leases>) -> Self {
        Self { store, leases }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}
