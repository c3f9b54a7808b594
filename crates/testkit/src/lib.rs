//! Test support: conformance suites of stores, leases and slots, task fixtures, and fakes of every
//! dependency of a runtime.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test that panics has failed, which is what tests are for"
)]

pub mod bench;
pub mod faults;
pub mod lease_conformance;
pub mod mcp;
pub mod model_server;
pub mod peers;
pub mod programs;
pub mod raw_http;
pub mod remotes;
pub mod runtime;
pub mod secret_files;
pub mod store_conformance;
pub mod task_fixtures;
pub mod tools;
