//! Integration tests: complete runs, each in its own folder.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod checkpoints;
mod fixture;
mod lifecycle;
mod lineages;
mod removals;
mod repeatable;
mod retention;
mod turns;
mod worlds;
