//! Splits a stream into lines of limited length.

/// Splits a stream into lines.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    begun: Vec<u8>,
    bytes_max: usize,
    /// True if the current line exceeds the limit.
    is_too_long: bool,
    /// The number of dropped lines.
    pub(crate) dropped: u64,
}

impl LineSplitter {
    /// Splits lines of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { begun: Vec::new(), bytes_max, is_too_long: false, dropped: 0 }
    }

    /// Calls `each` with every line that ends in the next bytes, without its line end.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
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

    /// Calls `each` with the last line, if it has no line end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
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
            let mut lines = LineSplitter::new(6);
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
