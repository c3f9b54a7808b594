//! What a run wrote, as it is kept: masked, in files, up to a limit that both of its streams share.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the last line of a file says that does not hold everything.
const CUT_MARK: &str = "[polity: the output is cut here]";

/// How much may still be kept of a run, in bytes.
#[derive(Debug, Clone)]
pub(super) struct Room {
    left: Arc<AtomicU64>,
}

impl Room {
    pub(super) fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)) }
    }

    /// Takes up to so much of it, and says how much that is.
    fn take(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let after = |left: u64| Some(left.saturating_sub(wanted));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        let taken = wanted.min(left.unwrap_or_else(|left| left));
        usize::try_from(taken).unwrap_or(usize::MAX)
    }
}

/// A file that is made when there is something to keep.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: PathBuf,
    room: Room,
    file: Option<File>,
    /// Whether something was not kept.
    pub(super) is_cut: bool,
}

impl KeptFile {
    pub(super) fn new(path: PathBuf, room: Room) -> Self {
        Self { path, room, file: None, is_cut: false }
    }

    /// Keeps what there is room for. A disk that is full must not hold the program back, so what
    /// cannot be written is not kept.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.is_cut || bytes.is_empty() {
            return;
        }
        let kept = whole_characters(bytes, self.room.take(bytes.len()));
        let written = self.open().and_then(|mut file| file.write_all(&bytes[..kept]));
        if let Err(error) = &written {
            tracing::warn!(path = %self.path.display(), %error, "output is not kept");
        }
        self.is_cut = written.is_err() || kept < bytes.len();
    }

    /// Whether there is a file. If it does not hold everything, it says so now.
    pub(super) fn finish(mut self) -> bool {
        if self.is_cut {
            // On a disk that is full there is no place for it either.
            let _ = self.open().and_then(|mut file| writeln!(file, "\n{CUT_MARK}"));
        }
        self.file.is_some()
    }

    fn open(&mut self) -> io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                self.path.parent().map_or(Ok(()), fs::create_dir_all)?;
                Ok(none.insert(File::create(&self.path)?))
            }
        }
    }
}

/// As much of the bytes as fits, without a part of a character at the end.
fn whole_characters(bytes: &[u8], fits: usize) -> usize {
    let is_within = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xC0 == 0x80);
    (0..=fits).rev().take(4).find(|at| !is_within(*at)).unwrap_or(fits)
}

/// The whole of a kept file; nothing if nothing was kept.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_share_the_room_and_say_where_they_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(10);
        let path = |name: &str| folder.path().join("of/a/run").join(name);
        let mut first = KeptFile::new(path("first"), room.clone());
        let mut second = KeptFile::new(path("second"), room.clone());
        first.write(b"1234567");
        second.write("ab\u{e9}".as_bytes());
        second.write(b"more");
        assert!(!first.is_cut && second.is_cut);
        assert!(first.finish() && second.finish());
        assert_eq!(fs::read_to_string(path("first")).unwrap(), "1234567");
        let second = fs::read_to_string(path("second")).unwrap();
        assert_eq!(second, format!("ab\n{CUT_MARK}\n"));
        assert!(!KeptFile::new(path("third"), room).finish());
        assert_eq!(read(&path("third")).unwrap(), b"");
    }
}
