//! Lines of a stream of bytes, none longer than can be kept.

/// Cuts a stream into lines.
#[derive(Debug)]
pub(super) struct Lines {
    begun: Vec<u8>,
    bytes_max: usize,
    /// Whether the line that has begun is too long already.
    is_too_long: bool,
    /// How many lines were too long, and are lost.
    pub(super) dropped: u64,
}

impl Lines {
    /// Lines of at most so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { begun: Vec::new(), bytes_max, is_too_long: false, dropped: 0 }
    }

    /// The lines that end in the next bytes, without their ends.
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if self.begun.is_empty() && !self.is_too_long && end <= self.bytes_max {
                each(&rest[..end]);
            } else {
                self.keep(&rest[..end]);
                self.end(&mut each);
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    /// The last line, if it has no end.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.begun.is_empty() || self.is_too_long {
            self.end(&mut each);
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.is_too_long || self.begun.len() + piece.len() > self.bytes_max {
            self.is_too_long = true;
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.is_too_long {
            self.dropped += 1;
        } else {
            each(&self.begun);
        }
        self.is_too_long = false;
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_wherever_the_stream_is_divided() {
        let given = b"one\n\ntwelve letters\nfour\nlast";
        for cut in 0..=given.len() {
            let mut lines = Lines::new(6);
            let mut found = Vec::new();
            let mut each = |line: &[u8]| found.push(String::from_utf8_lossy(line).into_owned());
            lines.push(&given[..cut], &mut each);
            lines.push(&given[cut..], &mut each);
            lines.finish(&mut each);
            assert_eq!(found, ["one", "", "four", "last"], "{cut}");
            assert_eq!(lines.dropped, 1, "{cut}");
        }
    }
}
