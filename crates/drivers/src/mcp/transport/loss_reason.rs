//! The reason for which a transport gave up.

use std::sync::{Arc, OnceLock};

/// The reason for which a transport gave up, shared with its connection. A connection with a reason
/// is not used again.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossReason(Arc<OnceLock<String>>);

impl LossReason {
    /// Records a reason. The first one stays.
    pub(crate) fn set(&self, reason: impl Into<String>) {
        let _ = self.0.set(reason.into());
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// The reason, to be appended to an error. Empty without one.
    pub(crate) fn details(&self) -> String {
        self.get().map(|reason| format!("; {reason}")).unwrap_or_default()
    }
}
