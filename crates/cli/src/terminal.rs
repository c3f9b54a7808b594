//! The one place that prints.
//!
//! Everything that is printed may hold text of a model, a tool, a program, a server, a file or an
//! argument. Text is neutralised on its way out, so that none of it reaches the terminal as a
//! command. Styles are explicit: [`styled`] marks them with a nonce of this process, which no other
//! text can contain. JSON keeps all characters, with those that a terminal obeys as escapes.
//!
//! | output | on a terminal | in a file or pipe |
//! |---|---|---|
//! | text, on stdout and stderr | neutralised, with styles | neutralised |
//! | JSON | escaped | escaped |
//! | the result of a task or tool, diagrams | neutralised | exact bytes |

#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod neutral;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use polity_engine::entropy::{EntropySource, SystemEntropy};
use serde::Serialize;

use crate::error::CliError;
use neutral::escape_json;
pub(crate) use neutral::neutralise;

/// Prints a line on stderr. An error is ignored, so that lost progress output does not end the work.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::terminal::tell(&format!("{}\n", format_args!($($text)*)))
    };
}

/// Prints a line on stdout.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::terminal::print_text(&format!("{}\n", format_args!($($text)*)))
    };
}

pub(crate) use {note, say};

/// Returns to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    /// Errors.
    Error,
    /// Warnings.
    Warning,
    /// Success.
    Good,
    /// Hints.
    Hint,
    /// Labels.
    Label,
    /// Secondary text.
    Dim,
}

impl TextStyle {
    const ALL: [Self; 6] =
        [Self::Error, Self::Warning, Self::Good, Self::Hint, Self::Label, Self::Dim];

    /// The character that stands for the style in marked text.
    fn mark(self) -> char {
        match self {
            Self::Error => 'e',
            Self::Warning => 'w',
            Self::Good => 'g',
            Self::Hint => 'h',
            Self::Label => 'l',
            Self::Dim => 'd',
        }
    }

    fn ansi(self) -> Style {
        match self {
            Self::Error => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Hint => AnsiColor::Cyan.on_default(),
            Self::Label => Style::new().bold(),
            Self::Dim => Style::new().dimmed(),
        }
    }
}

/// The character that ends a style in marked text.
const PLAIN: char = '.';

/// Marks a text with a style, for printing.
pub(crate) fn styled(style: TextStyle, text: &str) -> String {
    let nonce = style_nonce();
    format!("{nonce}{}{text}{nonce}{PLAIN}", style.mark())
}

/// The beginning of each mark. It is random, so that text from elsewhere cannot set a style.
fn style_nonce() -> &'static str {
    static NONCE: OnceLock<String> = OnceLock::new();
    NONCE.get_or_init(|| format!("\u{fdd0}{:032x}", u128::from_ne_bytes(SystemEntropy.seed())))
}

/// Replaces the marks of styles by their escape sequences, and neutralises everything else.
fn render(text: &str) -> String {
    let mut pieces = text.split(style_nonce());
    let mut rendered = neutralise(pieces.next().unwrap_or_default()).into_owned();
    for piece in pieces {
        let mut rest = piece.chars();
        let mark = rest.next();
        match TextStyle::ALL.into_iter().find(|style| Some(style.mark()) == mark) {
            Some(style) => rendered.push_str(&style.ansi().render().to_string()),
            None => rendered.push_str(&anstyle::Reset.render().to_string()),
        }
        rendered.push_str(&neutralise(rest.as_str()));
    }
    rendered
}

/// Writes text to stderr, without colours unless it is a terminal.
pub(crate) fn tell(text: &str) {
    write_stderr(&render(text));
}

/// Writes text to stderr in place of the current line.
pub(crate) fn rewrite_line(text: &str) {
    write_stderr(&format!("{CLEAR_LINE}{}", render(text)));
}

/// Writes a JSON document to stderr, on one line.
pub(crate) fn tell_json(value: &serde_json::Value) {
    write_stderr(&format!("{}\n", escape_json(&value.to_string())));
}

#[expect(clippy::disallowed_methods, reason = "this module prints")]
fn write_stderr(text: &str) {
    let mut stderr = anstream::stderr().lock();
    // An error of stderr cannot be reported anywhere.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes text to stdout, without colours unless it is a terminal.
#[expect(clippy::disallowed_methods, reason = "this module prints")]
pub(crate) fn print_text(text: &str) -> Result<(), CliError> {
    let mut stdout = anstream::stdout().lock();
    printed(stdout.write_all(render(text).as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints one JSON document on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let not_serializable =
        |error: &str| CliError::usage(format!("the output cannot be serialized as JSON: {error}"));
    let text =
        polity_host::to_pretty_json(value).map_err(|error| not_serializable(&error.to_string()))?;
    let text = String::from_utf8(text).map_err(|error| not_serializable(&error.to_string()))?;
    write_stdout(&escape_json(&text))
}

/// Prints a result or a document: its exact bytes to a file or pipe, neutralised on a terminal.
pub(crate) fn print_exact(text: &str) -> Result<(), CliError> {
    if is_stdout_terminal() { write_stdout(&neutralise(text)) } else { write_stdout(text) }
}

#[expect(clippy::disallowed_methods, reason = "this module prints")]
fn write_stdout(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    printed(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// A closed pipe, as from `head`, is no error.
fn printed(outcome: std::io::Result<()>) -> Result<(), CliError> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::io("write to", Path::new("stdout"), &error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "this module prints")]
fn is_stdout_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// True if stderr is a terminal.
#[expect(clippy::disallowed_methods, reason = "this module prints")]
pub(crate) fn is_stderr_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Prints panics through this module: their messages may hold text from elsewhere too.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        note!("{}: this is a bug in polity: {panic}", styled(TextStyle::Error, "error"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            note!("{backtrace}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_text_is_styled() {
        let text = format!("{}: \u{1b}[31mred", styled(TextStyle::Error, "err\u{9b}or"));
        assert_eq!(render(&text), "\u{1b}[1m\u{1b}[31merr\u{fffd}or\u{1b}[0m: \u{fffd}[31mred");
        // The form of a mark is known, and its nonce is not.
        let forged = format!("\u{fdd0}{:032x}eforged", 7);
        assert_eq!(render(&forged), format!("\u{fffd}{:032x}eforged", 7));
    }

    #[test]
    fn every_style_has_a_mark_of_its_own() {
        for (index, style) in TextStyle::ALL.into_iter().enumerate() {
            let first = TextStyle::ALL.into_iter().position(|other| other.mark() == style.mark());
            assert_eq!(first, Some(index));
            assert_ne!(style.mark(), PLAIN);
        }
    }
}
