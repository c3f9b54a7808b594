//! The version of a run.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::SimError;

/// The format of runs that this program writes and continues. It changes with the files of a run,
/// and with any rule or draw that would make a resumed run diverge.
pub const RUN_FORMAT: u32 = 4;

/// The program that last wrote a run, and the format of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunVersion {
    /// The version of Polity.
    pub polity: String,
    /// The format of the run.
    pub format: u32,
}

impl RunVersion {
    /// Returns the version of this program.
    pub fn current() -> Self {
        Self { polity: env!("CARGO_PKG_VERSION").to_owned(), format: RUN_FORMAT }
    }

    /// Fails unless this program can continue the run. Only the format counts: all versions of
    /// Polity with one format compute the same results.
    pub(super) fn check(found: Option<&Self>, folder: &Path) -> Result<(), SimError> {
        if found.is_some_and(|found| found.format == RUN_FORMAT) {
            return Ok(());
        }
        Err(SimError::OtherFormat { path: folder.to_owned(), found: found.cloned() })
    }
}
