//! The fuzz target of archives.

use polity_model::digest::Digest;
use polity_store::block_on;

use super::journal;
use super::staging::StagedTasks;

/// Reads a journal, whose closing line is added here, and loads its task as an import does.
pub fn archive_journal(bytes: &[u8]) {
    let mut text = bytes.to_vec();
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let events = text.split(|byte| *byte == b'\n').count().saturating_sub(2);
    let digest = Digest::of(&text);
    text.extend_from_slice(format!("{{\"events\":{events},\"sha256\":\"{digest}\"}}\n").as_bytes());
    let Ok(import) = journal::read(&text) else { return };
    let Ok(staged) = StagedTasks::new(vec![import]) else { return };
    for import in staged.imports() {
        let Ok(None) = block_on(staged.find_contradiction(import)) else { return };
        // A task that cannot be shown is refused by the import as well.
        drop(block_on(staged.files(import, false)));
    }
}
