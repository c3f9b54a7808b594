//! The fuzz target of archives.
#![expect(clippy::expect_used, reason = "a target reports a broken promise by a panic")]

use polity_model::digest::Digest;
use polity_store::block_on;

use super::check::check_journals;
use super::journal;

/// The most journals of an input. Each further one costs time and adds nothing.
const JOURNALS_MAX: usize = 4;

/// Reads the journals of an archive, which an empty line separates, and checks them as an import
/// does. Their closing lines are added here. A journal that is read is written and read back
/// unchanged. Every task that passes the check can be listed, and has the same files each time.
///
/// # Panics
/// If one of these promises is broken.
pub fn archive_journals(bytes: &[u8]) {
    count_valid_tasks(bytes);
}

/// Does the work of [`archive_journals`]. Returns the number of tasks that pass the check; none if one
/// of them does not.
///
/// # Panics
/// If a promise is broken.
pub fn count_valid_tasks(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let mut imports = Vec::new();
    for journal in text.split("\n\n").take(JOURNALS_MAX) {
        let Ok(import) = journal::read(&closed(journal)) else { return 0 };
        let written = journal::write(&import).expect("a journal that was read can be written");
        let again = journal::read(&written).expect("a written journal can be read");
        assert_eq!(again.task, import.task, "the task has changed");
        assert_eq!(again.definitions, import.definitions, "a definition has changed");
        assert_eq!(again.events, import.events, "an event has changed");
        imports.push(import);
    }
    let Ok(staged) = block_on(check_journals(imports)) else { return 0 };
    for import in staged.imports() {
        let row = block_on(staged.row(import.task)).expect("a staged task has a row");
        assert_eq!(row.id, import.task, "the row is that of another task");
        let files = || block_on(staged.files(import, false)).map_err(|error| error.to_string());
        assert_eq!(files(), files(), "the files differ");
    }
    staged.imports().len()
}

/// The journal with its closing line.
fn closed(journal: &str) -> Vec<u8> {
    let mut text = journal.trim_end_matches('\n').to_owned();
    text.push('\n');
    let events = text.lines().count() - 1;
    let digest = Digest::of(text.as_bytes());
    format!("{text}{{\"events\":{events},\"sha256\":\"{digest}\"}}\n").into_bytes()
}
