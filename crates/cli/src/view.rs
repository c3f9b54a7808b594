//! Output: tables, steps and colours for terminals, and JSON.

pub(crate) mod comparison;
pub(crate) mod live;
pub(crate) mod message;
pub(crate) mod simulation;
pub(crate) mod steps;
pub(crate) mod style;
pub(crate) mod task;

use std::io::{ErrorKind, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::error::CliError;

/// Prints a line on stderr. An error is ignored, so that lost progress output does not end the work.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::view::tell(&format!("{}\n", format_args!($($text)*)))
    };
}

/// Prints a line on stdout.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::view::print_text(&format!("{}\n", format_args!($($text)*)))
    };
}

pub(crate) use {note, say};

/// Writes to stderr, without colours unless it is a terminal.
pub(crate) fn tell(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // An error of stderr cannot be reported anywhere.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes to stdout, without colours unless it is a terminal.
pub(crate) fn print_text(text: &str) -> Result<(), CliError> {
    let mut stdout = anstream::stdout().lock();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints one JSON document on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = polity_host::to_pretty_json(value).map_err(|error| {
        CliError::usage(format!("the output cannot be serialized as JSON: {error}"))
    })?;
    print_bytes(&text)
}

/// Prints bytes on stdout unchanged. A closed pipe, as from `head`, is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    printed(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

fn printed(outcome: std::io::Result<()>) -> Result<(), CliError> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::io("write to", std::path::Path::new("stdout"), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The least terminal width at which columns wrap.
const FOLDED_WIDTH_MIN: u16 = 40;

/// The width of the terminal on stderr, if known.
pub(crate) fn width_of_stderr() -> Option<usize> {
    let width = Table::new().use_stderr().width()?;
    (width > 0).then_some(width.into())
}

/// A table without borders.
pub(crate) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    columns(&heading, rows.into_iter().map(Vec::from))
}

/// A table without borders, with a dynamic number of columns.
pub(crate) fn columns(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    arranged(ContentArrangement::Dynamic, heading, rows)
}

/// A table whose rows never wrap.
pub(crate) fn lines(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    arranged(ContentArrangement::Disabled, heading, rows)
}

fn arranged(
    arrangement: ContentArrangement,
    heading: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    // Wrapped columns are unreadable on a narrow terminal.
    let is_narrow = table.width().is_some_and(|width| width < FOLDED_WIDTH_MIN);
    let arrangement = if is_narrow { ContentArrangement::Disabled } else { arrangement };
    table.load_style(presets::NOTHING).set_content_arrangement(arrangement).set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        // The first two columns hold ids and names, which must not wrap.
        if index < 2 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Replaces control characters and bidirectional overrides, which could manipulate a terminal.
pub(crate) fn strip_control(text: &str) -> String {
    let obeyed = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(obeyed) {
        return text.to_owned();
    }
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// "1 agent", "2 agents".
pub(crate) fn count(number: usize, what: &str) -> String {
    let plural = match (number, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {what}{plural}")
}

/// A readable duration: "4 ms", "1.2 s", "3 min 5 s".
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strip_control_replaces_control_characters() {
        assert_eq!(strip_control("plain\ttext\nand ü"), "plain\ttext\nand ü");
        assert_eq!(strip_control("\u{1b}[31mred\r\u{7}\u{9b}\u{202e}"), "�[31mred����");
    }

    #[test]
    fn counts_and_durations_are_readable() {
        assert_eq!(count(1, "agent"), "1 agent");
        assert_eq!(count(0, "agent"), "0 agents");
        assert_eq!(count(2, "process"), "2 processes");
        assert_eq!(duration(4), "4 ms");
        assert_eq!(duration(1234), "1.2 s");
        assert_eq!(duration(185_000), "3 min 5 s");
    }
}
