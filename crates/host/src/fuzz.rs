//! Entry points for fuzzing: archives of tasks.

pub use crate::archive::fuzz::{archive_journals, count_valid_tasks};
