//! How two texts differ, in a few lines.

use std::fmt::Write;

/// Unchanged lines that are shown around a change.
const CONTEXT_LINES: usize = 2;

/// The most lines that are shown.
const LINES_MAX: usize = 40;

/// How much of a line is shown, in characters; of a longer one, the part where it changes.
const LINE_CHARACTERS_MAX: usize = 160;

/// How much of a long line is shown before the place where it changes, in characters.
const BEFORE_CHANGE_CHARACTERS: usize = 40;

/// The most pairs of lines that are compared for the shortest difference. Beyond that, all lines
/// that differ are taken to be replaced.
const PAIRS_MAX: usize = 1_000_000;

/// One line of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'t> {
    Same(&'t str),
    Recorded(&'t str),
    Now(&'t str),
}

/// What was recorded, marked with `-`, and what is asked now, marked with `+`. Nothing if both are
/// the same.
pub(super) fn difference(recorded: &str, now: &str) -> String {
    let lines = compared(&split(recorded), &split(now));
    let is_change = |line: &Line<'_>| !matches!(line, Line::Same(_));
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
        // As far as changes are near one another, they are shown as one.
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

/// All lines of both, in order, with as few changes as possible.
fn compared<'t>(recorded: &[&'t str], now: &[&'t str]) -> Vec<Line<'t>> {
    let pairs = || recorded.iter().zip(now);
    let opening = pairs().take_while(|(a, b)| a == b).count();
    let (recorded, now) = (&recorded[opening..], &now[opening..]);
    let same: Vec<_> = pairs().take(opening).map(|(line, _)| Line::Same(line)).collect();
    let ending = recorded.iter().rev().zip(now.iter().rev()).take_while(|(a, b)| a == b).count();
    let (recorded, tail) = recorded.split_at(recorded.len() - ending);
    let now = &now[..now.len() - ending];
    let middle = changed(recorded, now);
    same.into_iter().chain(middle).chain(tail.iter().map(|line| Line::Same(line))).collect()
}

/// The lines between the first change and the last: the longest common part of both stays.
fn changed<'t>(recorded: &[&'t str], now: &[&'t str]) -> Vec<Line<'t>> {
    let replaced = || {
        let recorded = recorded.iter().map(|line| Line::Recorded(line));
        recorded.chain(now.iter().map(|line| Line::Now(line))).collect()
    };
    if recorded.len().saturating_mul(now.len()) > PAIRS_MAX {
        return replaced();
    }
    // How many lines the ends of both have in common, from each pair of places on.
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
                lines.push(Line::Same(a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), other)
                if other.is_none() || common[(i + 1) * width + j] >= common[i * width + j + 1] =>
            {
                lines.push(Line::Recorded(a));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Now(b));
                j += 1;
            }
            (_, None) => break,
        }
    }
    lines
}

fn line(lines: &[Line<'_>], at: usize) -> String {
    match lines[at] {
        Line::Same(text) => format!("    {}", part(text, 0)),
        Line::Recorded(text) => format!("  - {}", part(text, change(text, counterpart(lines, at)))),
        Line::Now(text) => format!("  + {}", part(text, change(text, counterpart(lines, at)))),
    }
    .trim_end()
    .to_owned()
}

/// The line that stands in the place of a line that changed: the first of the other side next to it.
fn counterpart<'t>(lines: &[Line<'t>], at: usize) -> Option<&'t str> {
    match lines[at] {
        Line::Same(_) => None,
        Line::Recorded(_) => lines[at..].iter().find_map(|line| match line {
            Line::Now(text) => Some(*text),
            Line::Same(_) | Line::Recorded(_) => None,
        }),
        Line::Now(_) => lines[..at].iter().rev().find_map(|line| match line {
            Line::Recorded(text) => Some(*text),
            Line::Same(_) | Line::Now(_) => None,
        }),
    }
}

/// The character at which two lines begin to differ.
fn change(text: &str, other: Option<&str>) -> usize {
    let other = other.unwrap_or_default();
    text.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

/// A line, or the part of a long one that is around a change.
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
    fn differences_show_what_changed_and_a_little_around_it() {
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
            assert_eq!(difference(recorded, now), expected, "{recorded:?} {now:?}");
        }
    }

    #[test]
    fn of_long_lines_the_part_that_changed_is_shown() {
        let long = |middle: &str| format!("{}{middle}{}", "x".repeat(500), "y".repeat(500));
        let shown = difference(&long("one"), &long("two"));
        assert!(shown.contains("xone") && shown.contains("xtwo"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 170), "{shown}");
    }

    #[test]
    fn long_differences_are_cut() {
        let many =
            |word: &str| (0..5000).map(|n| format!("{word} {n}")).collect::<Vec<_>>().join("\n");
        let shown = difference(&many("a"), &many("b"));
        assert!(shown.lines().count() <= LINES_MAX + 3 * CONTEXT_LINES, "{shown}");
        assert!(shown.trim_end().ends_with("more lines that differ"), "{shown}");
    }
}
