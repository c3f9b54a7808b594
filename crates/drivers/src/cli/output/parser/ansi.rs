//! Strips terminal escape sequences from a stream, however it is split.

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// The position within an escape sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    /// Outside of any sequence.
    #[default]
    Text,
    /// After the escape character.
    Escape,
    /// In a short sequence, before its final character.
    Short,
    /// In a control sequence, for example a colour.
    Control,
    /// In a string, for example a window title.
    String,
    /// In a string, after an escape character that may end it.
    StringEscape,
}

#[derive(Debug, Default)]
pub(crate) struct AnsiStripper {
    state: EscapeState,
}

impl AnsiStripper {
    pub(crate) fn strip(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.iter().copied().filter(|byte| self.is_text(*byte)).collect()
    }

    fn is_text(&mut self, byte: u8) -> bool {
        let (state, is_text) = match (self.state, byte) {
            // A line end terminates every sequence, so that a truncated one hides at most one line.
            (_, b'\n') => (EscapeState::Text, true),
            (EscapeState::String, ESCAPE) => (EscapeState::StringEscape, false),
            (_, ESCAPE) => (EscapeState::Escape, false),
            (EscapeState::Text, _) => (EscapeState::Text, true),
            (EscapeState::Escape, b'[') => (EscapeState::Control, false),
            (EscapeState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => (EscapeState::String, false),
            (EscapeState::Escape | EscapeState::Short, 0x20..=0x2f) => (EscapeState::Short, false),
            (EscapeState::Escape | EscapeState::Short, 0x30..=0x7e) => (EscapeState::Text, false),
            (EscapeState::Control, 0x20..=0x3f) => (EscapeState::Control, false),
            (EscapeState::Control, 0x40..=0x7e) => (EscapeState::Text, false),
            // Invalid here: it was not a sequence.
            (EscapeState::Escape | EscapeState::Short | EscapeState::Control, _) => {
                (EscapeState::Text, true)
            }
            (EscapeState::String, BELL) | (EscapeState::StringEscape, b'\\') => {
                (EscapeState::Text, false)
            }
            (EscapeState::String | EscapeState::StringEscape, _) => (EscapeState::String, false),
        };
        self.state = state;
        is_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_sequences_regardless_of_chunks() {
        for (text, expected) in [
            ("plain \u{e4}", "plain \u{e4}"),
            ("\x1b[1;31mred\x1b[0m!", "red!"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
            ("\x1b(Bx\x1b7y\x1b[?25lz", "xyz"),
            ("\x1b]0;never ends\nnext", "\nnext"),
            ("\x1b[31\u{e4}", "\u{e4}"),
        ] {
            for cut in 0..=text.len() {
                let mut ansi = AnsiStripper::default();
                let (start, end) = text.as_bytes().split_at(cut);
                let left = [ansi.strip(start), ansi.strip(end)].concat();
                assert_eq!(String::from_utf8_lossy(&left), expected, "{text:?} at {cut}");
            }
        }
    }
}
