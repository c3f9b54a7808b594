//! Output files of a run: masked, up to a limit that both streams share.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polity_files::{FileAccess, create_file, create_private_folders, read_regular_file};

use crate::cli::run::files::ignore_missing;

/// The last line of a truncated file.
const TRUNCATION_NOTE: &str = "[polity: the output is cut here]";

/// The maximum size of an output file from which the outcome of a run is recovered.
const RECOVERED_BYTES_MAX: u64 = 1 << 30;

/// The remaining bytes that a run may store.
#[derive(Debug, Clone)]
pub(crate) struct OutputBudget {
    left: Arc<AtomicU64>,
}

impl OutputBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)) }
    }

    /// Takes up to `wanted` bytes and returns the number taken.
    fn take(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let after = |left: u64| Some(left.saturating_sub(wanted));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let taken = wanted.min(left.unwrap_or_else(|left| left));
        usize::try_from(taken).unwrap_or(usize::MAX)
    }
}

/// A file that is created with its first byte.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    budget: OutputBudget,
    file: Option<File>,
    pub(crate) is_truncated: bool,
}

impl OutputFile {
    pub(crate) fn new(path: PathBuf, budget: OutputBudget) -> Self {
        Self { path, budget, file: None, is_truncated: false }
    }

    /// Writes as much as the budget allows. Write errors truncate the output but do not stop the
    /// process: a full disk must not block it.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        if self.is_truncated || bytes.is_empty() {
            return;
        }
        let length = char_boundary_before(bytes, self.budget.take(bytes.len()));
        let written = self.open().and_then(|mut file| file.write_all(&bytes[..length]));
        if let Err(error) = &written {
            tracing::warn!(path = %self.path.display(), %error, "cannot write an output file");
        }
        self.is_truncated = written.is_err() || length < bytes.len();
    }

    /// Returns true if the file exists. Appends a note if it is truncated.
    pub(crate) fn finish(mut self) -> bool {
        if self.is_truncated {
            // A full disk has no space for the note either.
            let _ = self.open().and_then(|mut file| writeln!(file, "\n{TRUNCATION_NOTE}"));
        }
        self.file.is_some()
    }

    fn open(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                self.path.parent().map_or(Ok(()), create_private_folders)?;
                // The program may have created a FIFO here, which must not be opened.
                ignore_missing(fs::remove_file(&self.path))?;
                Ok(none.insert(create_file(&self.path, FileAccess::Private)?))
            }
        }
    }
}

/// The longest prefix of at most `fits` bytes that does not split a character.
fn char_boundary_before(bytes: &[u8], fits: usize) -> usize {
    let is_within = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (0..=fits).rev().take(4).find(|at| !is_within(*at)).unwrap_or(fits)
}

/// The content of an output file; empty if there is none.
pub(crate) fn read_output_file(path: &Path) -> io::Result<Vec<u8>> {
    match read_regular_file(path, RECOVERED_BYTES_MAX).map_err(io::Error::from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_the_budget_and_note_truncation() {
        let folder = tempfile::tempdir().unwrap();
        let budget = OutputBudget::new(10);
        let path = |name: &str| folder.path().join("of/a/run").join(name);
        let mut first = OutputFile::new(path("first"), budget.clone());
        let mut second = OutputFile::new(path("second"), budget.clone());
        first.write(b"1234567");
        second.write("ab\u{e9}".as_bytes());
        second.write(b"more");
        assert!(!first.is_truncated && second.is_truncated);
        assert!(first.finish() && second.finish());
        assert_eq!(fs::read_to_string(path("first")).unwrap(), "1234567");
        let second = fs::read_to_string(path("second")).unwrap();
        assert_eq!(second, format!("ab\n{TRUNCATION_NOTE}\n"));
        assert!(!OutputFile::new(path("third"), budget).finish());
        assert_eq!(read_output_file(&path("third")).unwrap(), b"");
    }
}
