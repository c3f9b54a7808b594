//! Entry points for fuzzing: text on its way to the terminal.

pub use crate::terminal::fuzz::terminal_text;
