//! HTTP conventions that all routes share: problems, extractors, pages, waiting and checks of the
//! request's origin.

mod blocking;
mod extract;
mod idempotency;
mod origin;
mod page;
mod problem;
mod request_id;
mod state_changes;
mod wait;
mod whole_number;

pub(crate) use blocking::run_blocking;
pub(crate) use extract::{ApiJson, ApiPath, ApiQuery};
pub(crate) use idempotency::{IdempotencyKey, RunningKey, RunningKeys};
pub(crate) use origin::{AllowedHosts, check_origin};
pub(crate) use page::{Cursor, Page, PageLimit};
pub(crate) use problem::{Problem, ProblemDetails};
pub(crate) use request_id::tag_request;
pub(crate) use state_changes::state_changes_schema;
pub(crate) use wait::{WAIT_PATTERN, WaitTime};
pub(crate) use whole_number::{WHOLE_NUMBER_MAX, optional_whole, whole_number};
