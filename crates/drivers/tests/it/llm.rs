//! Models over HTTP: every case against a model server, in every wire format.

mod answers;
mod conversations;
mod failures;
mod harness;
