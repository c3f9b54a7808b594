//! The checksums of checkpoints.
//!
//! A JSON checkpoint ends with the SHA-256 of all bytes before it, as its last field. A compact
//! checkpoint ends with the 32 bytes of the SHA-256 itself.

use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::{JSON_BYTES_MAX, StateDigest, hexadecimal};
use crate::error::ensure;
use crate::folder::CheckpointFormat;

/// Precedes the checksum of a JSON checkpoint.
const FIELD: &str = "\"checksum\": \"";
/// Follows the checksum of a JSON checkpoint.
const END: &str = "\"\n}\n";

/// The number of bytes hashed at once.
const HASH_BYTES: usize = 1 << 16;

/// Ends a JSON checkpoint that lacks its last field and its closing brace.
pub(super) fn seal(text: &mut Vec<u8>) {
    text.extend_from_slice(b",\n");
    let checksum = hexadecimal(Sha256::digest(&text).into());
    for part in [FIELD, &checksum, END] {
        text.extend_from_slice(part.as_bytes());
    }
}

/// Checks a JSON checkpoint against its checksum.
pub(super) fn check(text: &str) -> Result<(), String> {
    let found = text.rsplit_once(FIELD).and_then(|(content, rest)| {
        Some((hexadecimal(Sha256::digest(content).into()), rest.strip_suffix(END)?))
    });
    ensure!(
        found.is_some_and(|(expected, found)| expected == found),
        "its content does not match its checksum: the file was damaged or edited"
    );
    Ok(())
}

/// True if a file can be read and matches its checksum.
pub(super) fn is_intact(path: &Path, format: CheckpointFormat) -> bool {
    match format {
        CheckpointFormat::Json => {
            let bytes = polity_files::read_named_file(path, JSON_BYTES_MAX).ok();
            let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            text.is_some_and(|text| check(&text).is_ok())
        }
        CheckpointFormat::Compact => is_compact_intact(path).unwrap_or(false),
    }
}

fn is_compact_intact(path: &Path) -> io::Result<bool> {
    let mut file = polity_files::open_named_file(path)?;
    let Some(length) = file.metadata()?.len().checked_sub(size_of::<StateDigest>() as u64) else {
        return Ok(false);
    };
    let mut hash = Sha256::new();
    let (mut content, mut buffer) = (file.by_ref().take(length), vec![0; HASH_BYTES]);
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            count => hash.update(&buffer[..count]),
        }
    }
    let mut found = StateDigest::default();
    file.read_exact(&mut found)?;
    Ok(StateDigest::from(hash.finalize()) == found)
}
