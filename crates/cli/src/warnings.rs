//! Warnings of the host on stderr.

use std::path::Path;

use polity_host::{HostWarning, ReviewWarning};
use serde_json::json;

use crate::args::GlobalOptions;
use crate::terminal::{note, tell_json};
use crate::view::live::print_line;
use crate::view::style;

/// Shows a warning. A review without a notification is shown even with `--quiet`.
pub(crate) fn show(options: &GlobalOptions, warning: &HostWarning) {
    match warning {
        HostWarning::OpenData { path, count } => show_open_data(options, path, *count),
        HostWarning::Telemetry(problem) if options.shows_progress() => {
            note!("{}: telemetry: {problem}", style::warning("warning"));
        }
        HostWarning::Telemetry(problem) => tracing::warn!("telemetry: {problem}"),
        HostWarning::Review(warning) => show_review(options, warning),
    }
}

/// Shown even with `--quiet`: others may have read the data.
fn show_open_data(options: &GlobalOptions, path: &Path, count: u64) {
    let hint = "if others use this machine, replace the secrets that were in your tasks";
    let path = path.display();
    let message =
        format!("{path} was open to other users; {count} files and folders are private now");
    print_warning(options, "open_data", &message, hint);
}

fn show_review(options: &GlobalOptions, warning: &ReviewWarning) {
    let hint = match warning {
        ReviewWarning::Aborted => "the review is still open: `polity review list`",
        ReviewWarning::NotSerializable { .. } => "show it with `polity review list`",
        ReviewWarning::NotDelivered { cause, .. } => cause.hint(),
        ReviewWarning::Unreadable(_) => "`polity review list` lists the open reviews",
    };
    print_warning(options, "notify", &warning.to_string(), hint);
}

/// Prints a warning on stderr.
pub(crate) fn print_warning(options: &GlobalOptions, code: &str, message: &str, hint: &str) {
    if options.json {
        let warning = json!({"code": code, "message": message, "hint": hint});
        tell_json(&json!({ "warning": warning }));
        return;
    }
    print_line(options, &format!("{}: {message}", style::warning("warning")));
    print_line(options, &format!("  {}: {hint}", style::hint("hint")));
}
