//! Server-sent events: the lines in which providers of models and other agents stream their answers.
//!
//! Only the `data` of an event is told. All of them repeat in it what the other fields say.

/// Puts events together from pieces of a stream that may end anywhere.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// The data of the event that is being read; lines are joined by line feeds.
    data: Vec<u8>,
    has_data: bool,
    has_told: bool,
}

impl EventReader {
    /// Reads on, and tells the data of each event that is complete now.
    pub(crate) fn push<E>(
        &mut self,
        mut piece: &[u8],
        mut tell: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = piece.split_at(end);
            piece = &rest[1..];
            if self.line.is_empty() {
                self.take_line(line, &mut tell)?;
            } else {
                self.line.extend_from_slice(line);
                let mut line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut tell)?;
                line.clear();
                self.line = line;
            }
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    /// The stream has ended. Some servers leave out the empty line after their last event.
    pub(crate) fn finish<E>(
        &mut self,
        mut tell: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.push(b"\n\n", &mut tell)
    }

    /// Whether there was no event so far.
    pub(crate) fn is_silent(&self) -> bool {
        !self.has_told
    }

    fn take_line<E>(
        &mut self,
        line: &[u8],
        tell: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if !std::mem::take(&mut self.has_data) {
                return Ok(());
            }
            self.has_told = true;
            let told = tell(&self.data);
            self.data.clear();
            return told;
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &str, piece_bytes: usize) -> Vec<String> {
        let mut told = Vec::new();
        let mut reader = EventReader::default();
        let mut tell = |data: &[u8]| {
            told.push(String::from_utf8(data.to_vec()).unwrap());
            Ok::<(), ()>(())
        };
        for piece in text.as_bytes().chunks(piece_bytes) {
            reader.push(piece, &mut tell).unwrap();
        }
        reader.finish(&mut tell).unwrap();
        assert_eq!(reader.is_silent(), told.is_empty());
        told
    }

    #[test]
    fn events_are_the_same_wherever_the_stream_is_split() {
        let cases: [(&str, &[&str]); 7] = [
            ("data: one\n\ndata: two\n\n", &["one", "two"]),
            ("data: one\r\n\r\ndata:two\r\n\r\n", &["one", "two"]),
            ("event: ping\n\n: comment\n\nid: 7\ndata: x\n\n", &["x"]),
            ("data: first\ndata: second\n\n", &["first\nsecond"]),
            ("data:  kept space\n\n", &[" kept space"]),
            ("data: without an empty line", &["without an empty line"]),
            ("\n\n\n", &[]),
        ];
        for (text, expected) in cases {
            for piece_bytes in [1, 2, 3, 7, 1000] {
                assert_eq!(events(text, piece_bytes), expected, "{text:?} by {piece_bytes}");
            }
        }
    }
}
