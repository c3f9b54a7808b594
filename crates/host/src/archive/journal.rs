//! `journal.jsonl`: a line with the definitions, a line for each event, and a line that closes it.
//!
//! The last line has a digest of all before it, so that a file that was cut or changed is noticed.

use std::collections::BTreeMap;
use std::fmt::Display;

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::event::{Event, StreamSequence};
use polity_model::ids::TaskId;
use polity_store::{PinnedDefinition, TaskImport};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the format.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct JournalHeader {
    format: u32,
    task_id: TaskId,
    /// Each in its canonical form, by its digest.
    definitions: BTreeMap<Digest, String>,
}

/// The format version, which is read first.
#[derive(Deserialize)]
struct JournalVersion {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct JournalLine<E> {
    sequence: StreamSequence,
    at: Timestamp,
    event: E,
}

#[derive(Serialize, Deserialize)]
struct JournalFooter {
    events: u64,
    sha256: Digest,
}

/// A problem of a journal, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JournalFault {
    pub(super) line: usize,
    pub(super) message: String,
}

fn fault<T>(line: usize, message: impl Display) -> Result<T, JournalFault> {
    Err(JournalFault { line, message: message.to_string() })
}

/// The line of an event.
pub(super) fn line_of(sequence: StreamSequence) -> usize {
    usize::try_from(sequence.0).map_or(usize::MAX, |sequence| sequence.saturating_add(1))
}

/// Writes a task as a journal.
pub(super) fn write(import: &TaskImport) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = Vec::new();
    let definitions =
        import.definitions.iter().map(|pinned| (pinned.digest, pinned.json.to_string())).collect();
    push(&mut text, &JournalHeader { format: FORMAT, task_id: import.task, definitions })?;
    for (sequence, (at, event)) in (1..).map(StreamSequence).zip(&import.events) {
        push(&mut text, &JournalLine { sequence, at: *at, event })?;
    }
    let foot = JournalFooter { events: import.events.len() as u64, sha256: Digest::of(&text) };
    push(&mut text, &foot)?;
    Ok(text)
}

fn push(text: &mut Vec<u8>, value: &impl Serialize) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *text, value)?;
    text.push(b'\n');
    Ok(())
}

/// Reads a journal, and finds the first thing that is wrong with it.
pub(super) fn read(text: &[u8]) -> Result<TaskImport, JournalFault> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // The text after the last line end must be empty.
    let (rest, last) = (lines.pop().unwrap_or_default(), lines.len());
    if !rest.is_empty() {
        return fault(last + 1, "the file is cut off in the middle of this line");
    }
    let [first, events @ .., closing] = lines.as_slice() else {
        return fault(last.max(1), "the file is cut off: there are no events");
    };
    let (task, definitions) = read_head(first)?;
    let mut import = TaskImport { task, events: Vec::new(), definitions };
    for (index, line) in events.iter().enumerate() {
        let JournalLine { sequence, at, event } = parse::<JournalLine<Event>>(index + 2, line)?;
        if sequence.0 != index as u64 + 1 {
            let expected = index + 1;
            return fault(
                index + 2,
                format!("event {expected} is missing: this is {}", sequence.0),
            );
        }
        import.events.push((at, event));
    }
    let Ok(foot) = serde_json::from_slice::<JournalFooter>(closing) else {
        let what = "the file is cut off: its last line does not say how many events there are";
        return fault(last, what);
    };
    if foot.events != import.events.len() as u64 {
        let (said, found) = (foot.events, import.events.len());
        return fault(last, format!("there are {found} events, and this says {said}"));
    }
    let before = &text[..text.len() - closing.len() - 1];
    if Digest::of(before) != foot.sha256 {
        return fault(last, "the lines before this one were changed: their digest differs");
    }
    Ok(import)
}

fn read_head(line: &[u8]) -> Result<(TaskId, Vec<PinnedDefinition>), JournalFault> {
    let JournalVersion { format } = parse(1, line)?;
    if format != FORMAT {
        let what = format!("the format is {format}, and this program reads format {FORMAT}");
        return fault(1, what);
    }
    let head: JournalHeader = parse(1, line)?;
    let mut definitions = Vec::with_capacity(head.definitions.len());
    for (digest, json) in head.definitions {
        if Digest::of(json.as_bytes()) != digest {
            return fault(1, format!("the definition {digest} was changed: its digest differs"));
        }
        definitions.push(PinnedDefinition { digest, json: json.into() });
    }
    Ok((head.task_id, definitions))
}

fn parse<T: DeserializeOwned>(number: usize, line: &[u8]) -> Result<T, JournalFault> {
    serde_json::from_slice(line).or_else(|error| {
        // The error's line number is always 1; only its column is useful.
        let column = error.column();
        let kind = match error.classify() {
            serde_json::error::Category::Data => "this cannot be read",
            serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof
            | serde_json::error::Category::Io => "this is not JSON",
        };
        let told = error.to_string();
        let what = told.split(" at line ").next().unwrap_or_default();
        fault(number, format!("{kind}: {what}, at column {column}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> TaskImport {
        let json = "{\"kind\":\"llm\"}".to_owned();
        let digest = Digest::of(json.as_bytes());
        TaskImport {
            task: TaskId::from_random_bytes([7; 16]),
            events: vec![
                (Timestamp::UNIX_EPOCH, Event::TaskStarted),
                (Timestamp::UNIX_EPOCH, Event::TaskCancelled),
            ],
            definitions: vec![PinnedDefinition { digest, json: json.into() }],
        }
    }

    #[test]
    fn journal_round_trips() {
        let text = write(&journal()).unwrap();
        let again = read(&text).unwrap();
        assert_eq!(write(&again).unwrap(), text);
        assert_eq!((again.events, again.task), (journal().events, journal().task));
    }

    #[test]
    fn journal_detects_every_truncation() {
        let text = write(&journal()).unwrap();
        for length in 0..text.len() {
            let fault = read(&text[..length]).unwrap_err();
            assert!(fault.message.contains("cut off"), "{length}: {fault:?}");
        }
    }

    #[test]
    fn journal_detects_every_changed_byte() {
        let text = write(&journal()).unwrap();
        for place in 0..text.len() {
            for byte in [b'x', b'\n', b' ', b'7', 0xff] {
                let mut changed = text.clone();
                changed[place] = byte;
                assert!(changed == text || read(&changed).is_err(), "{place} {byte}");
            }
        }
    }

    #[test]
    fn journal_names_the_line_of_a_lost_or_duplicate_event() {
        let text = String::from_utf8(write(&journal()).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let [head, one, two, foot] = lines.as_slice() else { panic!("{text}") };
        for (lines, line, what) in [
            ([*head, *two, *foot].as_slice(), 2, "event 1 is missing: this is 2"),
            (&[*head, *one, *one, *two, *foot], 3, "event 2 is missing: this is 1"),
            (&[*head, *one, *foot], 3, "there are 1 events, and this says 2"),
            (&[*one, *two, *foot], 1, "missing field `format`"),
            (&[*head, "{", *two, *foot], 2, "this is not JSON"),
            (&["{\"format\":9}", *one, *foot], 1, "the format is 9"),
        ] {
            let fault = read((lines.join("\n") + "\n").as_bytes()).unwrap_err();
            assert!(fault.line == line && fault.message.contains(what), "{fault:?}");
        }
    }
}
