//! Reads what a program prints while it prints it: what to show of it, and in the end the answer
//! and everything else that its definition says where to find.
//!
//! Programs print log lines between their events, end in the midst of one, and write what is no
//! UTF-8. Nothing of that is an error here; what is missing in the end is for the verdict.

mod ansi;
mod characters;
mod found;
mod lines;

#[cfg(test)]
#[path = "parser/parser_tests.rs"]
mod tests;

use polity_definition::{OutputFormat, OutputParser};
use polity_model::usage::{Cost, Usage};

use crate::masking::Mask;
use serde_json::Value;

use self::ansi::Ansi;
pub(super) use self::characters::Characters;
use self::found::Found;
use self::lines::Lines;

/// The longest answer, document and line that is kept, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often the beginning of a document is looked for among other output. Each try may read all
/// of it.
const DOCUMENT_TRIES_MAX: usize = 100;

/// What was found in what a program printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Parsed {
    /// The answer.
    pub(crate) answer: Option<String>,
    /// The text of an error. A run that has one has failed.
    pub(crate) error: Option<String>,
    /// What the program calls its status.
    pub(crate) status: Option<String>,
    /// The program's own name for the conversation.
    pub(crate) session_id: Option<String>,
    /// Tokens sent to the model.
    pub(crate) input_tokens: Option<u64>,
    /// Tokens that the model answered with.
    pub(crate) output_tokens: Option<u64>,
    /// What it cost.
    pub(crate) cost_usd: Option<f64>,
    /// Whether the event came that only a whole run ends with.
    pub(crate) terminal_event_seen: bool,
    /// How many JSON documents there were.
    pub(crate) documents: u64,
    /// How many lines are lost because they were too long.
    pub(crate) lines_dropped: u64,
    /// What is still to be shown.
    pub(crate) rest_shown: String,
}

impl Parsed {
    /// The same without secrets.
    pub(crate) fn masked(self, mask: &Mask) -> Self {
        let masked = |text: Option<String>| text.map(|text| mask.mask_text(&text).into_owned());
        Self {
            answer: masked(self.answer),
            error: masked(self.error),
            session_id: masked(self.session_id),
            ..self
        }
    }

    /// What the program says it used of a model.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            cost: self.cost_usd.map_or(Cost::ZERO, Cost::of_usd),
        }
    }
}

/// Reads what a program prints.
#[derive(Debug)]
pub(crate) struct Parser {
    rules: OutputParser,
    ansi: Ansi,
    form: Form,
    found: Found,
}

#[derive(Debug)]
enum Form {
    Text(Characters),
    Document { kept: Vec<u8>, is_cut: bool },
    Lines(Lines),
}

impl Parser {
    /// Reads by these rules.
    pub(crate) fn new(rules: &OutputParser) -> Self {
        let form = match rules.format {
            OutputFormat::Text => Form::Text(Characters::default()),
            OutputFormat::Json => Form::Document { kept: Vec::new(), is_cut: false },
            OutputFormat::Jsonl | OutputFormat::StreamJson => {
                Form::Lines(Lines::new(ANSWER_BYTES_MAX))
            }
        };
        Self { rules: rules.clone(), ansi: Ansi::default(), form, found: Found::default() }
    }

    /// Reads on. What is to be shown of it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        if self.rules.strip_ansi {
            let left = self.ansi.strip(bytes);
            self.read(&left)
        } else {
            self.read(bytes)
        }
    }

    fn read(&mut self, bytes: &[u8]) -> String {
        let (rules, found) = (&self.rules, &mut self.found);
        match &mut self.form {
            Form::Text(characters) => {
                let piece = characters.push(bytes);
                found.answer(&piece, true);
                piece
            }
            Form::Document { kept, is_cut } => {
                let room = ANSWER_BYTES_MAX.saturating_sub(kept.len()).min(bytes.len());
                *is_cut |= room < bytes.len();
                kept.extend_from_slice(&bytes[..room]);
                String::new()
            }
            Form::Lines(lines) => {
                let mut shown = String::new();
                lines.push(bytes, |line| read_line(line, rules, found, &mut shown));
                shown
            }
        }
    }

    /// What was found, once all is read.
    pub(crate) fn finish(self) -> Parsed {
        let Self { rules, mut found, form, .. } = self;
        let mut rest_shown = String::new();
        let mut lines_dropped = 0;
        match form {
            Form::Text(mut characters) => {
                rest_shown = characters.finish();
                found.answer(&rest_shown, true);
            }
            Form::Document { kept, is_cut } => {
                lines_dropped = u64::from(is_cut);
                let text = String::from_utf8_lossy(&kept);
                for document in documents(&text) {
                    look_into(&document, &rules, &mut found, &mut rest_shown);
                }
            }
            Form::Lines(mut lines) => {
                lines.finish(|line| read_line(line, &rules, &mut found, &mut rest_shown));
                lines_dropped = lines.dropped;
            }
        }
        let parsed = found.finish();
        let answer = parsed.answer.map(|answer| trimmed(&answer).to_owned());
        let answer = answer.filter(|answer| !answer.is_empty());
        Parsed { answer, lines_dropped, rest_shown, ..parsed }
    }
}

/// The text without empty lines around it. What the first line is indented by stays.
fn trimmed(text: &str) -> &str {
    let text = text.trim_end();
    let first = text.find(|c: char| !c.is_whitespace()).unwrap_or(0);
    text[..first].rfind('\n').map_or(text, |end| &text[end + 1..])
}

fn read_line(line: &[u8], rules: &OutputParser, found: &mut Found, shown: &mut String) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return;
    }
    let document = serde_json::from_str(text).ok().filter(|document: &Value| {
        // Words and numbers are JSON too, but no events.
        document.is_object() || document.is_array()
    });
    let is_stream = rules.format == OutputFormat::StreamJson;
    match document {
        Some(document) if is_stream => look_into(&document, rules, found, shown),
        Some(document) => {
            look_into(&document, rules, found, &mut String::new());
            shown.push_str(text);
            shown.push('\n');
        }
        None => {
            shown.push_str(text);
            shown.push('\n');
        }
    }
}

/// Looks into a document, or into each of a list of documents.
fn look_into(document: &Value, rules: &OutputParser, found: &mut Found, shown: &mut String) {
    let one = std::slice::from_ref(document);
    let documents = document.as_array().map_or(one, Vec::as_slice);
    for document in documents {
        if let Some(text) = found.look(document, rules) {
            shown.push_str(&text);
            // Pieces of a text follow one another as they are.
            if !rules.join_answers && !text.ends_with('\n') {
                shown.push('\n');
            }
        }
    }
}

/// The documents in a text, which may have other lines before, between and behind them.
fn documents(text: &str) -> Vec<Value> {
    let text = text.trim_start_matches('\u{feff}');
    if let Ok(document) = serde_json::from_str(text) {
        return vec![document];
    }
    let mut found = Vec::new();
    let mut rest = text;
    for _ in 0..DOCUMENT_TRIES_MAX {
        let Some(start) = document_start(rest) else { break };
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let read = if let Some(Ok(document)) = values.next() {
            found.push(document);
            values.byte_offset()
        } else {
            1
        };
        rest = &rest[read..];
    }
    found
}

/// Where a line begins as a document does.
fn document_start(text: &str) -> Option<usize> {
    let is_start = |line: &str| line.starts_with(['{', '[']);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if is_start(line) {
            return Some(at);
        }
        at += line.len();
    }
    None
}
