//! Models over HTTP, seen from the outside: every case against a model server, in every wire
//! format.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod answers;
mod conversations;
mod failures;
mod harness;
