//! Warnings of the host on stderr.

use polity_host::{HostWarning, ReviewWarning};
use serde_json::json;

use crate::args::GlobalOptions;
use crate::view::live::print_line;
use crate::view::{note, strip_control, style};

/// Shows a warning. A review without a notification is shown even with `--quiet`.
pub(crate) fn show(options: &GlobalOptions, warning: &HostWarning) {
    match warning {
        HostWarning::Telemetry(problem) if options.shows_progress() => {
            note!("{}: telemetry: {problem}", style::warning("warning"));
        }
        HostWarning::Telemetry(problem) => tracing::warn!("telemetry: {problem}"),
        HostWarning::Review(warning) => show_review(options, warning),
    }
}

fn show_review(options: &GlobalOptions, warning: &ReviewWarning) {
    let hint = match warning {
        ReviewWarning::Aborted => "the review is still open: `polity review list`",
        ReviewWarning::NotSerializable { .. } => "show it with `polity review list`",
        ReviewWarning::NotDelivered { cause, .. } => cause.hint(),
        ReviewWarning::Unreadable(_) => "`polity review list` lists the open reviews",
    };
    let message = warning.to_string();
    if options.json {
        let warning = json!({"code": "notify", "message": message, "hint": hint});
        print_line(options, &json!({ "warning": warning }).to_string());
        return;
    }
    print_line(options, &format!("{}: {}", style::warning("warning"), strip_control(&message)));
    print_line(options, &format!("  {}: {hint}", style::hint("hint")));
}
