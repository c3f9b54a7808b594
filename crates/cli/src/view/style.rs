//! Colours, which `anstream` removes unless the output is a terminal.

use anstyle::{AnsiColor, Style};
use polity_model::machine::task::TaskStatus;
use polity_model::trace::StepStatus;

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// The style of errors.
pub(crate) fn error(text: &str) -> String {
    painted(AnsiColor::Red.on_default().bold(), text)
}

/// The style of warnings.
pub(crate) fn warning(text: &str) -> String {
    painted(AnsiColor::Yellow.on_default(), text)
}

/// The style of success.
pub(crate) fn good(text: &str) -> String {
    painted(AnsiColor::Green.on_default(), text)
}

/// The style of hints.
pub(crate) fn hint(text: &str) -> String {
    painted(AnsiColor::Cyan.on_default(), text)
}

/// The style of labels.
pub(crate) fn label(text: &str) -> String {
    painted(Style::new().bold(), text)
}

/// The style of secondary text.
pub(crate) fn dim(text: &str) -> String {
    painted(Style::new().dimmed(), text)
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
