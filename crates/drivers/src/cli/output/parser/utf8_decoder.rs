//! Decodes a stream as UTF-8, however it is split.

const BYTE_ORDER_MARK: char = '\u{feff}';

/// Joins split characters. Invalid bytes become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// The start of an incomplete character.
    partial: Vec<u8>,
    /// True after the first character; a byte order mark is stripped only before it.
    has_output: bool,
    /// The number of decoded bytes.
    bytes: u64,
    /// The offset of the first invalid byte.
    invalid_at: Option<u64>,
}

impl Utf8Decoder {
    /// Decodes the characters that are complete with the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        if self.partial.is_empty() {
            return self.decode(bytes);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        self.decode(&all)
    }

    /// Decodes an incomplete character at the end.
    pub(crate) fn finish(&mut self) -> String {
        let partial = std::mem::take(&mut self.partial);
        self.count(&partial);
        String::from_utf8_lossy(&partial).into_owned()
    }

    /// The offset of the first byte that is not UTF-8, among those decoded so far.
    pub(crate) fn invalid_at(&self) -> Option<u64> {
        self.invalid_at
    }

    fn count(&mut self, bytes: &[u8]) {
        if self.invalid_at.is_none()
            && let Err(error) = std::str::from_utf8(bytes)
        {
            self.invalid_at = Some(self.bytes + error.valid_up_to() as u64);
        }
        self.bytes += bytes.len() as u64;
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        let divided = partial_char_bytes(bytes);
        let (whole, partial) = bytes.split_at(bytes.len() - divided);
        self.partial = partial.to_vec();
        self.count(whole);
        let mut text = String::from_utf8_lossy(whole).into_owned();
        if !self.has_output && !text.is_empty() {
            self.has_output = true;
            if text.starts_with(BYTE_ORDER_MARK) {
                text.remove(0);
            }
        }
        text
    }
}

/// The number of bytes at the end that may start a character.
fn partial_char_bytes(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let mut starts = (from..bytes.len()).filter(|start| bytes[*start] >= 0xc0);
    let Some(start) = starts.next_back() else { return 0 };
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => {
            bytes.len() - start
        }
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_characters_regardless_of_chunks() {
        let bytes = "\u{feff}a\u{e4}\u{20ac}\u{1f600}!\u{feff}".as_bytes();
        for cut in 0..=bytes.len() {
            let mut decoder = Utf8Decoder::default();
            let start = decoder.push(&bytes[..cut]);
            let all = start + &decoder.push(&bytes[cut..]) + &decoder.finish();
            assert_eq!(all, "a\u{e4}\u{20ac}\u{1f600}!\u{feff}", "{cut}");
        }
    }

    #[test]
    fn finds_the_first_invalid_byte_regardless_of_chunks() {
        for (bytes, expected) in [
            (&b"\xef\xbb\xbfa\xc3\xa4\xff\xfe"[..], Some(6)),
            (b"ab\xf0\x9f", Some(2)),
            (b"ab\xf0\x9f\x98\x80", None),
        ] {
            for cut in 0..=bytes.len() {
                let mut decoder = Utf8Decoder::default();
                decoder.push(&bytes[..cut]);
                decoder.push(&bytes[cut..]);
                decoder.finish();
                assert_eq!(decoder.invalid_at(), expected, "{cut}");
            }
        }
    }

    #[test]
    fn replaces_invalid_bytes() {
        let mut decoder = Utf8Decoder::default();
        assert_eq!(decoder.push(b"a\xff\xe2\x82"), "a\u{fffd}");
        assert_eq!(decoder.push(b"b\xf0\x9f"), "\u{fffd}b");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.invalid_at(), Some(1));
    }
}
