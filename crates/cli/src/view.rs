//! What people see: tables, steps, colours; and JSON for programs.

pub(crate) mod live;
pub(crate) mod steps;
pub(crate) mod style;
pub(crate) mod task;

use std::io::{ErrorKind, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::error::CliError;

/// Prints one JSON document on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| CliError::usage(format!("the answer cannot be told as JSON: {error}")))?;
    text.push(b'\n');
    print_bytes(&text)
}

/// Prints bytes on stdout. A reader that has seen enough, such as `head`, is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::io("write to", std::path::Path::new("stdout"), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Columns without lines, which read well and are easy to cut up.
pub(crate) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
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

/// A duration as people say it: "4 ms", "1.2 s", "3 min 5 s".
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
    fn numbers_read_as_people_say_them() {
        assert_eq!(count(1, "agent"), "1 agent");
        assert_eq!(count(0, "agent"), "0 agents");
        assert_eq!(count(2, "process"), "2 processes");
        assert_eq!(duration(4), "4 ms");
        assert_eq!(duration(1234), "1.2 s");
        assert_eq!(duration(185_000), "3 min 5 s");
    }
}
