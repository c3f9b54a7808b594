//! Splits a stream into lines of limited length.

#[derive(Debug)]
pub(crate) struct LineSplitter {
    partial: Vec<u8>,
    bytes_max: usize,
    /// True if the current line exceeds the limit.
    is_too_long: bool,
    pub(crate) dropped: u64,
}

impl LineSplitter {
    /// Splits lines of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { partial: Vec::new(), bytes_max, is_too_long: false, dropped: 0 }
    }

    /// Calls `each` with every line that ends in the next bytes, without its line end.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() && !self.is_too_long && end <= self.bytes_max {
                each(&rest[..end]);
            } else {
                self.append(&rest[..end]);
                self.end_line(&mut each);
            }
            rest = &rest[end + 1..];
        }
        self.append(rest);
    }

    /// Calls `each` with the last line, if it has no line end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() || self.is_too_long {
            self.end_line(&mut each);
        }
    }

    fn append(&mut self, piece: &[u8]) {
        if self.is_too_long || self.partial.len() + piece.len() > self.bytes_max {
            self.is_too_long = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.is_too_long {
            self.dropped += 1;
        } else {
            each(&self.partial);
        }
        self.is_too_long = false;
        self.partial.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_lines_regardless_of_chunks() {
        let text = b"one\n\ntwelve letters\nfour\nlast";
        for cut in 0..=text.len() {
            let mut lines = LineSplitter::new(6);
            let mut lines_seen = Vec::new();
            let mut each =
                |line: &[u8]| lines_seen.push(String::from_utf8_lossy(line).into_owned());
            lines.push(&text[..cut], &mut each);
            lines.push(&text[cut..], &mut each);
            lines.finish(&mut each);
            assert_eq!(lines_seen, ["one", "", "four", "last"], "{cut}");
            assert_eq!(lines.dropped, 1, "{cut}");
        }
    }
}
