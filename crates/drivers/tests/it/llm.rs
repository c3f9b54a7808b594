//! Models over HTTP: every case in every provider's format, against a fake model server.

mod answers;
mod conversations;
mod endings;
mod failures;
mod harness;
