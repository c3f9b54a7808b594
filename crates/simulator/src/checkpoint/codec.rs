//! A portable binary encoding of numbers, texts and values.

use std::io::{self, ErrorKind, Read, Write};

use polity_statechart::ScalarValue;
use sha2::{Digest as _, Sha256};

/// The maximum length of a text in bytes, so that a damaged length cannot exhaust memory.
const TEXT_BYTES_MAX: u64 = 1 << 24;

/// The number of bytes hashed at once.
const HASH_BYTES: usize = 1 << 16;

/// An encoder that hashes its output.
pub(super) struct CheckpointEncoder<W> {
    out: W,
    pending: Vec<u8>,
    hash: Sha256,
}

impl<W: Write> CheckpointEncoder<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, pending: Vec::with_capacity(HASH_BYTES), hash: Sha256::new() }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= HASH_BYTES { self.pass_on() } else { Ok(()) }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.hash.update(&self.pending);
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    pub(super) fn byte(&mut self, byte: u8) -> io::Result<()> {
        self.bytes(&[byte])
    }

    /// Writes a variable-length number, seven bits per byte.
    pub(super) fn number(&mut self, mut number: u64) -> io::Result<()> {
        while number >= 0x80 {
            self.pending.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.byte(number.to_le_bytes()[0])
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        self.number(text.len() as u64)?;
        self.bytes(text.as_bytes())
    }

    pub(super) fn value(&mut self, value: &ScalarValue) -> io::Result<()> {
        match value {
            ScalarValue::Number(number) => {
                self.byte(0)?;
                // Zero has one encoding, without a sign.
                self.bytes(&(number + 0.0).to_le_bytes())
            }
            ScalarValue::Bool(value) => self.byte(if *value { 2 } else { 1 }),
            ScalarValue::Text(text) => {
                self.byte(3)?;
                self.text(text)
            }
        }
    }

    /// Returns the digest of the output and the writer.
    pub(super) fn finish(mut self) -> io::Result<([u8; 32], W)> {
        self.pass_on()?;
        Ok((self.hash.finalize().into(), self.out))
    }
}

/// Decodes the output of a [`CheckpointEncoder`].
pub(super) struct CheckpointDecoder<R> {
    input: R,
    /// The bytes read last, and the number of them that were consumed.
    buffer: Vec<u8>,
    seen: usize,
    hash: Sha256,
}

impl<R: Read> CheckpointDecoder<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: Vec::with_capacity(HASH_BYTES), seen: 0, hash: Sha256::new() }
    }

    pub(super) fn bytes(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            if self.seen == self.buffer.len() {
                self.read_on()?;
            }
            let here = &self.buffer[self.seen..];
            let count = here.len().min(into.len());
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&here[..count]);
            self.seen += count;
            into = later;
        }
        Ok(())
    }

    /// Reads more. The buffer must be consumed.
    #[cold]
    fn read_on(&mut self) -> io::Result<()> {
        self.hash.update(&self.buffer);
        self.buffer.clear();
        self.seen = 0;
        let read = self.input.by_ref().take(HASH_BYTES as u64).read_to_end(&mut self.buffer)?;
        if read == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> io::Result<u8> {
        if self.seen == self.buffer.len() {
            self.read_on()?;
        }
        let byte = self.buffer[self.seen];
        self.seen += 1;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(wrong("a number is too long"))
    }

    pub(super) fn text(&mut self) -> io::Result<String> {
        let length = self.number()?;
        if length > TEXT_BYTES_MAX {
            return Err(wrong("a text is too long"));
        }
        let mut bytes = vec![0; usize::try_from(length).map_err(|_| wrong("a text is too long"))?];
        self.bytes(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| wrong("a text is not UTF-8"))
    }

    pub(super) fn value(&mut self) -> io::Result<ScalarValue> {
        match self.byte()? {
            0 => {
                let mut bytes = [0; 8];
                self.bytes(&mut bytes)?;
                Ok(ScalarValue::Number(f64::from_le_bytes(bytes)))
            }
            1 => Ok(ScalarValue::Bool(false)),
            2 => Ok(ScalarValue::Bool(true)),
            3 => Ok(ScalarValue::text(&self.text()?)),
            other => Err(wrong(&format!("there is no kind of value {other}"))),
        }
    }

    /// Returns the digest of the consumed input, and the rest of the input.
    pub(super) fn finish(mut self) -> ([u8; 32], impl Read) {
        let rest = self.buffer.split_off(self.seen);
        self.hash.update(&self.buffer);
        (self.hash.finalize().into(), io::Cursor::new(rest).chain(self.input))
    }
}

/// Returns an error for invalid data.
pub(super) fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_round_trips_with_one_digest() {
        let numbers = [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
        let values = [
            ScalarValue::Number(-0.1),
            ScalarValue::Bool(true),
            ScalarValue::Bool(false),
            ScalarValue::text("ü"),
            ScalarValue::text(&"long ".repeat(20_000)),
        ];
        let mut encoder = CheckpointEncoder::new(Vec::new());
        for number in numbers {
            encoder.number(number).unwrap();
        }
        for value in &values {
            encoder.value(value).unwrap();
        }
        let (written, bytes) = encoder.finish().unwrap();
        let mut decoder = CheckpointDecoder::new(bytes.as_slice());
        for number in numbers {
            assert_eq!(decoder.number().unwrap(), number);
        }
        for value in &values {
            assert_eq!(&decoder.value().unwrap(), value);
        }
        let (read, mut rest) = decoder.finish();
        assert_eq!((read, rest.read(&mut [0]).unwrap()), (written, 0));
        assert_eq!(read, <[u8; 32]>::from(Sha256::digest(&bytes)));
    }

    #[test]
    fn decoder_leaves_the_rest_of_the_input() {
        let long = "x".repeat(3 * HASH_BYTES);
        let mut encoder = CheckpointEncoder::new(Vec::new());
        encoder.text(&long).unwrap();
        let (written, mut bytes) = encoder.finish().unwrap();
        bytes.extend(b"and more");
        let mut decoder = CheckpointDecoder::new(bytes.as_slice());
        assert_eq!(decoder.text().unwrap(), long);
        let (read, rest) = decoder.finish();
        assert_eq!((read, io::read_to_string(rest).unwrap().as_str()), (written, "and more"));
    }

    #[test]
    fn rejects_invalid_bytes() {
        assert!(CheckpointDecoder::new([0xff; 12].as_slice()).number().is_err());
        assert!(CheckpointDecoder::new([9].as_slice()).value().is_err());
        assert!(CheckpointDecoder::new([3, 1, 0xff].as_slice()).value().is_err());
        assert!(
            CheckpointDecoder::new([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1].as_slice())
                .text()
                .is_err()
        );
        assert!(CheckpointDecoder::new([5, b'a'].as_slice()).text().is_err());
    }
}
