//! Texts of limited length without allocation.

/// A text of less than `MAX` bytes. Excess is dropped; no text here comes near the limit.
pub(crate) struct TextBuffer<const MAX: usize> {
    bytes: [u8; MAX],
    length: usize,
}

impl<const MAX: usize> TextBuffer<MAX> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX], length: 0 }
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.raw(text.as_bytes())
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.push(*byte);
        }
        self
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        let mut digits = [0; 20];
        let (mut rest, mut count) = (number, 0);
        loop {
            digits[count] = b'0' + (rest % 10) as u8;
            count += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for index in (0..count).rev() {
            self.push(digits[index]);
        }
        self
    }

    /// Appends a JSON string. The bytes are a path that we made, without line breaks.
    pub(crate) fn quoted(mut self, bytes: &[u8]) -> Self {
        self.push(b'"');
        for byte in bytes {
            if matches!(byte, b'"' | b'\\') {
                self.push(b'\\');
            }
            self.push(*byte);
        }
        self.push(b'"');
        self
    }

    fn push(&mut self, byte: u8) {
        // One byte is reserved for the terminating zero.
        if self.length + 1 < MAX {
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The text with a terminating zero.
    pub(crate) fn as_c_str(&self) -> *const core::ffi::c_char {
        self.bytes.as_ptr().cast()
    }
}

/// Parses a pid.
pub(crate) fn number(digits: &[u8]) -> Option<isize> {
    let is_number = !digits.is_empty() && digits.len() < 10;
    (is_number && digits.iter().all(u8::is_ascii_digit))
        .then(|| digits.iter().fold(0, |number, digit| number * 10 + isize::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_a_round_trip() {
        for value in [0, 7, 10, 4_194_304] {
            let text = TextBuffer::<64>::new().number(value);
            assert_eq!(text.bytes(), value.to_string().as_bytes());
            assert_eq!(number(text.bytes()), isize::try_from(value).ok());
        }
        assert_eq!(
            TextBuffer::<64>::new().number(u64::MAX).bytes(),
            u64::MAX.to_string().as_bytes()
        );
        for text in ["", " 1", "1 2", "-1", "x", "99999999999"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn quotes_paths() {
        let text = TextBuffer::<64>::new().quoted(br#"/a\x2db/"c""#);
        assert_eq!(text.bytes(), br#""/a\\x2db/\"c\"""#);
    }

    #[test]
    fn text_always_ends_with_a_zero() {
        let text = TextBuffer::<8>::new().text("more than that");
        assert_eq!(text.bytes(), b"more th");
        assert_eq!(text.bytes[7], 0);
    }
}
