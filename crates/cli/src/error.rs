//! Errors on the terminal: printing and exit codes.

pub(crate) use polity_host::ErrorReport as CliError;
use polity_host::ReportKind;
use serde_json::json;

use crate::exit::ExitStatus;
use crate::terminal::{note, tell_json};
use crate::view::access::pinned_access;
use crate::view::style;

/// The result of a command.
pub(crate) type CliResult = Result<ExitStatus, CliError>;

/// The exit code of an error.
pub(crate) fn exit_status(error: &CliError) -> ExitStatus {
    match error.kind() {
        ReportKind::Failed => ExitStatus::Failed,
        ReportKind::Usage => ExitStatus::Usage,
        ReportKind::AwaitingHuman => ExitStatus::AwaitingHuman,
        ReportKind::TimedOut => ExitStatus::TimedOut,
        ReportKind::OverLimit => ExitStatus::OverLimit,
    }
}

/// Prints an error on stderr.
pub(crate) fn print_error(error: &CliError, json: bool) {
    if json {
        let mut document = json!({
            "code": error.code(),
            "message": error.message(),
            "hint": error.hint_text(),
        });
        if !error.problems().is_empty() {
            document["problems"] = json!(error.problems());
        }
        if !error.access().is_empty() {
            document["access"] = json!(error.access());
        }
        tell_json(&json!({ "error": document }));
        return;
    }
    for problem in error.problems() {
        note!("{problem}");
    }
    note!("{}: {}", style::error("error"), error.message());
    if !error.access().is_empty() {
        note!("it would use:\n{}", pinned_access(error.access()));
    }
    if let Some(hint) = error.hint_text() {
        note!("  {}: {hint}", style::hint("hint"));
    }
}
