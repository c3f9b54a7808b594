//! Changes of a task outside of its worker: create, fork, claim, answer, release, trust.

mod claim;
mod create;
mod fork;
mod readiness;
mod release;
mod trust;

pub use fork::ForkError;

pub(super) use claim::{answer_review, claim_task};
pub(super) use create::create_task;
pub(super) use fork::prepare_fork;
pub(super) use readiness::{check_prices, check_ready};
pub(super) use release::{release_task, retry_releases};
pub(super) use trust::trust_task;
