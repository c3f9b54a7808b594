//! Tests of the stores through their public API.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod conformance;
mod sealed_inputs;
mod sqlite_files;
