//! A short line diff of two texts.

use std::fmt::Write;

/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 2;

/// The largest number of shown lines.
const LINES_MAX: usize = 40;

/// The longest excerpt of a line, in characters; it contains the change.
const LINE_CHARACTERS_MAX: usize = 160;

/// The length of the excerpt before the change, in characters.
const BEFORE_CHANGE_CHARACTERS: usize = 40;

/// The largest number of compared pairs of lines. Above it, all differing lines count as replaced.
const PAIRS_MAX: usize = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'t> {
    Same(&'t str),
    Recorded(&'t str),
    Current(&'t str),
}

/// The diff of the recorded text (`-`) and the current one (`+`). Empty if both are equal.
pub(super) fn diff(recorded: &str, now: &str) -> String {
    let lines = compared(&split(recorded), &split(now));
    let is_change = |line: &DiffLine<'_>| !matches!(line, DiffLine::Same(_));
    let changes: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| is_change(line)).map(|(at, _)| at).collect();
    let mut text = String::new();
    let mut shown_to = 0;
    let mut shown = 0;
    for at in &changes {
        if *at < shown_to {
            continue;
        }
        if shown >= LINES_MAX {
            let more = changes.iter().filter(|change| *change >= at).count();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  … and {more} more lines that differ");
            break;
        }
        let begin = at.saturating_sub(CONTEXT_LINES).max(shown_to);
        if begin > shown_to {
            text.push_str("    …\n");
        }
        // Nearby changes are shown as one.
        let mut end = at + 1;
        for next in changes.iter().filter(|next| *next > at) {
            if *next > end + 2 * CONTEXT_LINES || end - begin >= LINES_MAX {
                break;
            }
            end = next + 1;
        }
        end = (end + CONTEXT_LINES).min(lines.len());
        for index in begin..end {
            let _ = writeln!(text, "{}", line(&lines, index));
        }
        shown += end - begin;
        shown_to = end;
    }
    text
}

fn split(text: &str) -> Vec<&str> {
    text.split('\n').collect()
}

/// All lines of both texts, with as few changes as possible.
fn compared<'t>(recorded: &[&'t str], now: &[&'t str]) -> Vec<DiffLine<'t>> {
    let pairs = || recorded.iter().zip(now);
    let opening = pairs().take_while(|(a, b)| a == b).count();
    let (recorded, now) = (&recorded[opening..], &now[opening..]);
    let same: Vec<_> = pairs().take(opening).map(|(line, _)| DiffLine::Same(line)).collect();
    let ending = recorded.iter().rev().zip(now.iter().rev()).take_while(|(a, b)| a == b).count();
    let (recorded, tail) = recorded.split_at(recorded.len() - ending);
    let now = &now[..now.len() - ending];
    let middle = changed(recorded, now);
    same.into_iter().chain(middle).chain(tail.iter().map(|line| DiffLine::Same(line))).collect()
}

/// The lines between the first and the last change, by longest common subsequence.
fn changed<'t>(recorded: &[&'t str], now: &[&'t str]) -> Vec<DiffLine<'t>> {
    let replaced = || {
        let recorded = recorded.iter().map(|line| DiffLine::Recorded(line));
        recorded.chain(now.iter().map(|line| DiffLine::Current(line))).collect()
    };
    if recorded.len().saturating_mul(now.len()) > PAIRS_MAX {
        return replaced();
    }
    // The length of the common subsequence from each pair of positions on.
    let width = now.len() + 1;
    let mut common = vec![0_usize; (recorded.len() + 1) * width];
    for (i, a) in recorded.iter().enumerate().rev() {
        for (j, b) in now.iter().enumerate().rev() {
            common[i * width + j] = if a == b {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < recorded.len() || j < now.len() {
        match (recorded.get(i), now.get(j)) {
            (Some(a), Some(b)) if a == b => {
                lines.push(DiffLine::Same(a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), other)
                if other.is_none() || common[(i + 1) * width + j] >= common[i * width + j + 1] =>
            {
                lines.push(DiffLine::Recorded(a));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(DiffLine::Current(b));
                j += 1;
            }
            (_, None) => break,
        }
    }
    lines
}

fn line(lines: &[DiffLine<'_>], at: usize) -> String {
    match lines[at] {
        DiffLine::Same(text) => format!("    {}", part(text, 0)),
        DiffLine::Recorded(text) => {
            format!("  - {}", part(text, change(text, counterpart(lines, at))))
        }
        DiffLine::Current(text) => {
            format!("  + {}", part(text, change(text, counterpart(lines, at))))
        }
    }
    .trim_end()
    .to_owned()
}

/// The nearest line of the other side, which a changed line replaces.
fn counterpart<'t>(lines: &[DiffLine<'t>], at: usize) -> Option<&'t str> {
    match lines[at] {
        DiffLine::Same(_) => None,
        DiffLine::Recorded(_) => lines[at..].iter().find_map(|line| match line {
            DiffLine::Current(text) => Some(*text),
            DiffLine::Same(_) | DiffLine::Recorded(_) => None,
        }),
        DiffLine::Current(_) => lines[..at].iter().rev().find_map(|line| match line {
            DiffLine::Recorded(text) => Some(*text),
            DiffLine::Same(_) | DiffLine::Current(_) => None,
        }),
    }
}

fn change(text: &str, other: Option<&str>) -> usize {
    let other = other.unwrap_or_default();
    text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// A line, or the excerpt of a long one around its change.
fn part(text: &str, change: usize) -> String {
    let length = text.chars().count();
    if length <= LINE_CHARACTERS_MAX {
        return text.to_owned();
    }
    let from = change.saturating_sub(BEFORE_CHANGE_CHARACTERS).min(length - LINE_CHARACTERS_MAX);
    let middle: String = text.chars().skip(from).take(LINE_CHARACTERS_MAX).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if from + LINE_CHARACTERS_MAX < length { "…" } else { "" };
    format!("{before}{middle}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_changes_with_context() {
        for (recorded, now, expected) in [
            ("same", "same", ""),
            ("Ada", "Bob", "  - Ada\n  + Bob\n"),
            ("a\nb\nc", "a\nc", "    a\n  - b\n    c\n"),
            ("a\nc", "a\nb\nc", "    a\n  + b\n    c\n"),
            ("1\n2\n3\n4\n5", "1\n2\n3\n4\nfive", "    …\n    3\n    4\n  - 5\n  + five\n"),
            ("a\n\nb", "a\n\nc", "    a\n\n  - b\n  + c\n"),
            (
                "a\n1\n2\n3\n4\n5\n6\nb",
                "A\n1\n2\n3\n4\n5\n6\nB",
                "  - a\n  + A\n    1\n    2\n    …\n    5\n    6\n  - b\n  + B\n",
            ),
        ] {
            assert_eq!(diff(recorded, now), expected, "{recorded:?} {now:?}");
        }
    }

    #[test]
    fn shows_the_changed_part_of_long_lines() {
        let long = |middle: &str| format!("{}{middle}{}", "x".repeat(500), "y".repeat(500));
        let shown = diff(&long("one"), &long("two"));
        assert!(shown.contains("xone") && shown.contains("xtwo"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 170), "{shown}");
    }

    #[test]
    fn truncates_long_diffs() {
        let many =
            |word: &str| (0..5000).map(|n| format!("{word} {n}")).collect::<Vec<_>>().join("\n");
        let shown = diff(&many("a"), &many("b"));
        assert!(shown.lines().count() <= LINES_MAX + 3 * CONTEXT_LINES, "{shown}");
        assert!(shown.trim_end().ends_with("more lines that differ"), "{shown}");
    }
}
