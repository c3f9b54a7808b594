//! Problems that do not stop the work.

use std::path::PathBuf;

use polity_drivers::notify::NotifyError;
use polity_model::ids::TaskId;

use crate::error::HostError;

/// A problem that does not stop the work, for the front end to show.
#[derive(Debug)]
pub enum HostWarning {
    /// The data folder was open to other users, and is private now.
    OpenData {
        /// The folder.
        path: PathBuf,
        /// The number of changed files and folders.
        count: u64,
    },
    /// Spans are not exported, or some were lost.
    Telemetry(String),
    /// A reviewer may not know of an open review.
    Review(ReviewWarning),
}

/// A review whose notification was not delivered.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ReviewWarning {
    /// The front end stopped waiting for the notification.
    #[error("stopped before all review notifications were sent")]
    Aborted,
    /// The review cannot be serialized.
    #[error("the review of task {task} cannot be serialized as JSON: {error}")]
    NotSerializable { task: TaskId, error: serde_json::Error },
    /// The configured command or webhook failed.
    #[error("no notification was sent for the review of task {task}: {cause}")]
    NotDelivered { task: TaskId, cause: NotifyError },
    /// The review cannot be read from the store.
    #[error("no notification was sent for a review: {0}")]
    Unreadable(HostError),
}
