//! Stores from the outside.

mod conformance;
mod sqlite_files;
