//! Colours, which `anstream` takes away where no terminal shows them.

use anstyle::{AnsiColor, Style};
use polity_model::machine::task::TaskStatus;
use polity_model::trace::StepStatus;

fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Something failed.
pub(crate) fn error(text: &str) -> String {
    painted(AnsiColor::Red.on_default().bold(), text)
}

/// Something is not as it should be.
pub(crate) fn warning(text: &str) -> String {
    painted(AnsiColor::Yellow.on_default(), text)
}

/// All is well.
pub(crate) fn good(text: &str) -> String {
    painted(AnsiColor::Green.on_default(), text)
}

/// What to do.
pub(crate) fn hint(text: &str) -> String {
    painted(AnsiColor::Cyan.on_default(), text)
}

/// What a value is about.
pub(crate) fn label(text: &str) -> String {
    painted(Style::new().bold(), text)
}

/// Less important.
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
