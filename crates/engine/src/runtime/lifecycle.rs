//! Changes of a task outside of its worker: create, fork, retry, claim, answer, release, trust.

mod claim;
mod create;
mod fork;
mod readiness;
mod release;
mod retry;
mod trust;

pub use fork::{ForkError, ForkRequest};
pub use retry::{RetryError, RetryRequest};

pub(super) use claim::{answer_review, claim_task};
pub(super) use create::create_task;
pub(super) use fork::{ContinuedTask, prepare_fork};
pub(super) use readiness::{check_prices, check_ready};
pub(super) use release::{release_task, retry_releases};
pub(super) use retry::{
    RetryIdentity, check_not_retried, continue_ended, prepare_retry, spent_by_chain,
};
pub(super) use trust::trust_task;
