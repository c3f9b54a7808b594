//! The styles of texts.

use polity_model::machine::task::TaskStatus;
use polity_model::trace::StepStatus;

use crate::terminal::{TextStyle, styled};

/// The style of errors.
pub(crate) fn error(text: &str) -> String {
    styled(TextStyle::Error, text)
}

/// The style of warnings.
pub(crate) fn warning(text: &str) -> String {
    styled(TextStyle::Warning, text)
}

/// The style of success.
pub(crate) fn good(text: &str) -> String {
    styled(TextStyle::Good, text)
}

/// The style of hints.
pub(crate) fn hint(text: &str) -> String {
    styled(TextStyle::Hint, text)
}

/// The style of labels.
pub(crate) fn label(text: &str) -> String {
    styled(TextStyle::Label, text)
}

/// The style of secondary text.
pub(crate) fn dim(text: &str) -> String {
    styled(TextStyle::Dim, text)
}

/// A status in its colour.
pub(crate) fn status(status: TaskStatus, text: &str) -> String {
    match status {
        TaskStatus::Completed => good(text),
        TaskStatus::Failed => error(text),
        TaskStatus::Cancelled | TaskStatus::AwaitingHuman => warning(text),
        TaskStatus::Pending | TaskStatus::Running => hint(text),
    }
}

/// The sign before a step.
pub(crate) fn sign(status: StepStatus) -> String {
    match status {
        StepStatus::Info => good("✓"),
        StepStatus::Warning => warning("!"),
        StepStatus::Error => error("✗"),
    }
}
