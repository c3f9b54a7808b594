//! Parses the output of a CLI agent while it is written: text to show, and at the end the answer
//! and the other fields of the parser rules.
//!
//! Agents print log lines between events, stop in the middle of one, and write invalid UTF-8. None
//! of that is an error here; the verdict handles missing fields.

mod ansi;
mod fields;
mod line_splitter;
mod utf8_decoder;

#[cfg(test)]
#[path = "parser/parser_tests.rs"]
mod tests;

use std::iter;

use polity_definition::{JsonPick, OutputFormat, OutputParser};
use polity_masking::SecretMask;
use polity_model::usage::{Cost, Usage};
use serde_json::Value;

use self::ansi::AnsiStripper;
use self::fields::FieldCollector;
use self::line_splitter::LineSplitter;
pub(crate) use self::utf8_decoder::Utf8Decoder;

/// The maximum length of an answer, document or line, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The maximum number of attempts to find a document in other output. Each may read all of it.
const DOCUMENT_TRIES_MAX: usize = 100;

/// Rules for the events of a program that a definition cannot express.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventRules {
    /// True if each event has the usage of one step, so that the sum counts. Its cost is 0 if the
    /// program knows no price.
    pub(crate) sums_usage: bool,
    /// The reasons of final events after an incomplete answer.
    pub(crate) cut: Vec<JsonPick>,
}

/// The fields in an agent's output.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ParsedOutput {
    pub(crate) answer: Option<String>,
    /// True if the answer exceeds its size limit, or may be in a line that does.
    pub(crate) answer_is_cut: bool,
    /// The program's own reason for an incomplete answer.
    pub(crate) cut_reason: Option<String>,
    /// The error message. A run with one has failed.
    pub(crate) error: Option<String>,
    /// The agent's own status.
    pub(crate) status: Option<String>,
    /// The agent's own session id.
    pub(crate) session_id: Option<String>,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) cost_usd: Option<f64>,
    /// True if the final event was seen.
    pub(crate) terminal_event_seen: bool,
    pub(crate) documents: u64,
    /// The offset of the first byte of a text that is not UTF-8; U+FFFD replaces such bytes.
    pub(crate) invalid_utf8_at: Option<u64>,
    /// The number of lines dropped because of their length.
    pub(crate) lines_dropped: u64,
    /// Text that is not shown yet.
    pub(crate) remaining_text: String,
}

impl ParsedOutput {
    /// Masks secrets in all texts.
    pub(crate) fn masked(self, mask: &SecretMask) -> Self {
        let masked = |text: Option<String>| text.map(|text| mask.mask_text(&text).into_owned());
        Self {
            answer: masked(self.answer),
            error: masked(self.error),
            session_id: masked(self.session_id),
            ..self
        }
    }

    /// The model usage reported by the agent.
    pub(crate) fn usage(&self) -> Usage {
        Usage::reported(self.input_tokens, self.output_tokens, self.cost_usd.map(Cost::of_usd))
    }
}

/// Parses output by the rules of an agent.
#[derive(Debug)]
pub(crate) struct AnswerParser {
    rules: OutputParser,
    ansi: AnsiStripper,
    format: FormatState,
    fields: FieldCollector,
}

#[derive(Debug)]
enum FormatState {
    Text(Utf8Decoder),
    Document { text: Vec<u8>, is_truncated: bool },
    Lines(LineSplitter),
}

impl AnswerParser {
    pub(crate) fn new(rules: &OutputParser) -> Self {
        let format = match rules.format {
            OutputFormat::Text => FormatState::Text(Utf8Decoder::default()),
            OutputFormat::Json => FormatState::Document { text: Vec::new(), is_truncated: false },
            OutputFormat::Jsonl | OutputFormat::StreamJson => {
                FormatState::Lines(LineSplitter::new(ANSWER_BYTES_MAX))
            }
        };
        Self {
            rules: rules.clone(),
            ansi: AnsiStripper::default(),
            format,
            fields: FieldCollector::default(),
        }
    }

    /// Adds the rules of a preset.
    pub(crate) fn with_events(mut self, events: &EventRules) -> Self {
        self.fields.events = events.clone();
        self
    }

    /// Parses the next bytes and returns the text to show.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        if self.rules.strip_ansi {
            let left = self.ansi.strip(bytes);
            self.read(&left)
        } else {
            self.read(bytes)
        }
    }

    fn read(&mut self, bytes: &[u8]) -> String {
        let (rules, fields) = (&self.rules, &mut self.fields);
        match &mut self.format {
            FormatState::Text(characters) => {
                let piece = characters.push(bytes);
                fields.set_answer(&piece, true);
                piece
            }
            FormatState::Document { text, is_truncated } => {
                let room = ANSWER_BYTES_MAX.saturating_sub(text.len()).min(bytes.len());
                *is_truncated |= room < bytes.len();
                text.extend_from_slice(&bytes[..room]);
                String::new()
            }
            FormatState::Lines(lines) => {
                let mut shown = String::new();
                lines.push(bytes, |line| read_line(line, rules, fields, &mut shown));
                shown
            }
        }
    }

    /// The result, at the end of the output.
    pub(crate) fn finish(self) -> ParsedOutput {
        let Self { rules, mut fields, format, .. } = self;
        let mut remaining_text = String::new();
        let mut lines_dropped = 0;
        match format {
            FormatState::Text(mut characters) => {
                remaining_text = characters.finish();
                fields.set_answer(&remaining_text, true);
                fields.parsed.invalid_utf8_at = characters.invalid_at();
            }
            FormatState::Document { text, is_truncated } => {
                lines_dropped = u64::from(is_truncated);
                let text = String::from_utf8_lossy(&text);
                for document in find_documents(&text) {
                    collect_fields(&document, &rules, &mut fields, &mut remaining_text);
                }
            }
            FormatState::Lines(mut lines) => {
                lines.finish(|line| read_line(line, &rules, &mut fields, &mut remaining_text));
                lines_dropped = lines.dropped;
            }
        }
        let parsed = fields.finish();
        let answer = parsed.answer.map(|answer| trim_blank_lines(&answer).to_owned());
        let answer = answer.filter(|answer| !answer.is_empty());
        // Without a final event, the answer may have been in a dropped line.
        let answer_is_cut = parsed.answer_is_cut
            || parsed.cut_reason.is_some()
            || (lines_dropped > 0 && !parsed.terminal_event_seen);
        ParsedOutput { answer, answer_is_cut, lines_dropped, remaining_text, ..parsed }
    }
}

/// Strips blank lines around a text, keeping the indentation of the first line.
fn trim_blank_lines(text: &str) -> &str {
    let text = text.trim_end();
    let first = text.find(|c: char| !c.is_whitespace()).unwrap_or(0);
    text[..first].rfind('\n').map_or(text, |end| &text[end + 1..])
}

fn read_line(line: &[u8], rules: &OutputParser, fields: &mut FieldCollector, shown: &mut String) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return;
    }
    let document = serde_json::from_str(text).ok().filter(|document: &Value| {
        // Plain words and numbers are valid JSON, but not events.
        document.is_object() || document.is_array()
    });
    match document {
        Some(document) if rules.format == OutputFormat::StreamJson => {
            return collect_fields(&document, rules, fields, shown);
        }
        Some(document) => collect_fields(&document, rules, fields, &mut String::new()),
        None => {}
    }
    shown.push_str(text);
    shown.push('\n');
}

/// Collects the fields of a document, or of each document of a list.
fn collect_fields(
    document: &Value,
    rules: &OutputParser,
    fields: &mut FieldCollector,
    shown: &mut String,
) {
    let one = std::slice::from_ref(document);
    let documents = document.as_array().map_or(one, Vec::as_slice);
    for document in documents {
        if let Some(text) = fields.collect(document, rules) {
            shown.push_str(&text);
            // Pieces of one text are joined without separators.
            if !rules.join_answers && !text.ends_with('\n') {
                shown.push('\n');
            }
        }
    }
}

/// The JSON documents in a text that may contain other lines.
fn find_documents(text: &str) -> Vec<Value> {
    let text = text.trim_start_matches('\u{feff}');
    if let Ok(document) = serde_json::from_str(text) {
        return vec![document];
    }
    let mut documents = Vec::new();
    let mut rest = text;
    for _ in 0..DOCUMENT_TRIES_MAX {
        let Some(start) = document_start(rest) else { break };
        rest = &rest[start..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let read = if let Some(Ok(document)) = values.next() {
            documents.push(document);
            values.byte_offset()
        } else {
            1
        };
        rest = &rest[read..];
    }
    documents
}

/// The start of the first line that may begin a document.
fn document_start(text: &str) -> Option<usize> {
    let mut starts = iter::once(0).chain(text.match_indices('\n').map(|(end, _)| end + 1));
    starts.find(|start| text[*start..].starts_with(['{', '[']))
}
