//! The report about a cassette after a run.

use polity_drivers::cassette::CassetteSize;
use polity_host::recording::{Recording, RecordingOutcome};
use polity_model::task::Task;

use crate::app::AppContext;
use crate::error::CliError;
use crate::terminal::note;
use crate::view::count;

/// The most unused answers that are listed.
const UNUSED_LISTED_MAX: usize = 5;

/// Writes the cassette of a run and reports on stderr.
pub(crate) fn finish(app: &AppContext, recording: &Recording, task: &Task) -> Result<(), CliError> {
    match recording.finish(task)? {
        RecordingOutcome::Discarded { file } if !app.json() => {
            let status = task.status;
            note!("nothing was recorded in {}: the task is {status}", file.display());
        }
        RecordingOutcome::Written { file, size } if app.shows_progress() => {
            note!("recorded {} in {}", size_text(size), file.display());
        }
        RecordingOutcome::Unused(answers) if app.shows_progress() => list_unused(&answers),
        RecordingOutcome::None
        | RecordingOutcome::Discarded { .. }
        | RecordingOutcome::Written { .. }
        | RecordingOutcome::Unused(_) => {}
    }
    Ok(())
}

/// The number of calls of each kind in a cassette.
fn size_text(size: CassetteSize) -> String {
    let CassetteSize { model_calls, tool_calls, runs, messages, reviews } = size;
    let mut counts = vec![count(model_calls, "model call"), count(tool_calls, "tool call")];
    if runs > 0 {
        counts.push(count(runs, "program run"));
    }
    if messages > 0 {
        counts.push(count(messages, "remote message"));
    }
    if reviews > 0 {
        counts.push(count(reviews, "review answer"));
    }
    let last = counts.pop().unwrap_or_default();
    format!("{} and {last}", counts.join(", "))
}

fn list_unused(answers: &[String]) {
    if answers.is_empty() {
        return;
    }
    note!("the cassette has {} that the run did not use:", count(answers.len(), "answer"));
    for answer in answers.iter().take(UNUSED_LISTED_MAX) {
        note!("  {answer}");
    }
    if answers.len() > UNUSED_LISTED_MAX {
        note!("  and {} more", answers.len() - UNUSED_LISTED_MAX);
    }
}
