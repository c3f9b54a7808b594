//! Drivers from the outside: real programs, real pipes, real connections.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod bench;
mod calls;
mod faults;
mod listings;
mod peers;
