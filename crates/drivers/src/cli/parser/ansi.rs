//! Takes the escape sequences of terminals out of a stream of bytes, wherever it is divided.

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// Where in a sequence the stream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// In none.
    #[default]
    Text,
    /// Behind the escape character.
    Escape,
    /// In one of two characters and more, up to its last character.
    Short,
    /// In a control sequence, such as those for colours.
    Control,
    /// In a string, such as the title of a window.
    String,
    /// In a string, behind an escape character, which may end it.
    StringEscape,
}

/// Takes escape sequences out.
#[derive(Debug, Default)]
pub(super) struct Ansi {
    place: Place,
}

impl Ansi {
    /// What is left of the next bytes.
    pub(super) fn strip(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.iter().copied().filter(|byte| self.is_text(*byte)).collect()
    }

    fn is_text(&mut self, byte: u8) -> bool {
        let (place, is_text) = match (self.place, byte) {
            // A line's end ends everything: a sequence that was cut off hides no more than a line.
            (_, b'\n') => (Place::Text, true),
            (Place::String, ESCAPE) => (Place::StringEscape, false),
            (_, ESCAPE) => (Place::Escape, false),
            (Place::Text, _) => (Place::Text, true),
            (Place::Escape, b'[') => (Place::Control, false),
            (Place::Escape, b']' | b'P' | b'X' | b'^' | b'_') => (Place::String, false),
            (Place::Escape | Place::Short, 0x20..=0x2f) => (Place::Short, false),
            (Place::Escape | Place::Short, 0x30..=0x7e) => (Place::Text, false),
            (Place::Control, 0x20..=0x3f) => (Place::Control, false),
            (Place::Control, 0x40..=0x7e) => (Place::Text, false),
            // Nothing that belongs there: it was no sequence after all.
            (Place::Escape | Place::Short | Place::Control, _) => (Place::Text, true),
            (Place::String, BELL) | (Place::StringEscape, b'\\') => (Place::Text, false),
            (Place::String | Place::StringEscape, _) => (Place::String, false),
        };
        self.place = place;
        is_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_taken_out_wherever_the_stream_is_divided() {
        for (given, expected) in [
            ("plain \u{e4}", "plain \u{e4}"),
            ("\x1b[1;31mred\x1b[0m!", "red!"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
            ("\x1b(Bx\x1b7y\x1b[?25lz", "xyz"),
            ("\x1b]0;never ends\nnext", "\nnext"),
            ("\x1b[31\u{e4}", "\u{e4}"),
        ] {
            for cut in 0..=given.len() {
                let mut ansi = Ansi::default();
                let (start, end) = given.as_bytes().split_at(cut);
                let left = [ansi.strip(start), ansi.strip(end)].concat();
                assert_eq!(String::from_utf8_lossy(&left), expected, "{given:?} at {cut}");
            }
        }
    }
}
