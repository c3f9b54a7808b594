//! Output: tables, steps and colours for terminals, and JSON.

pub(crate) mod access;
pub(crate) mod comparison;
pub(crate) mod live;
pub(crate) mod message;
pub(crate) mod simulation;
pub(crate) mod steps;
pub(crate) mod style;
pub(crate) mod task;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

use crate::terminal::neutralise;

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
        // Before the layout, which counts characters.
        table.add_row(row.iter().map(|cell| neutralise(cell).into_owned()));
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
    fn counts_and_durations_are_readable() {
        assert_eq!(count(1, "agent"), "1 agent");
        assert_eq!(count(0, "agent"), "0 agents");
        assert_eq!(count(2, "process"), "2 processes");
        assert_eq!(duration(4), "4 ms");
        assert_eq!(duration(1234), "1.2 s");
        assert_eq!(duration(185_000), "3 min 5 s");
    }
}
