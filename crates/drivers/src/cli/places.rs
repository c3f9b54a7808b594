//! Places among those who may run at once, in all processes of a home.
//!
//! A place is a file. Whoever takes it locks it alone, for a moment, and then shares the lock with
//! the shim, which opens the file itself: no descriptor has to be handed down, and the place is free
//! when neither Polity nor the shim holds on to it any more.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use polity_engine::driver::PlaceTaken;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

/// How many bytes of a pool's digest name its folder.
const NAME_BYTES: usize = 16;

/// The places of a home.
#[derive(Debug)]
pub(super) struct Places {
    folder: PathBuf,
    /// Where to look first, so that not everyone asks for the same place.
    next: AtomicU32,
}

impl Places {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, next: AtomicU32::new(0) }
    }

    /// Takes one of so many places of a pool, if one is free.
    pub(super) fn take(&self, pool: &str, places: u32) -> io::Result<Option<PlaceTaken>> {
        let folder = self.folder.join(name_of(pool));
        fs::create_dir_all(&folder)?;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for step in 0..places {
            let number = first.wrapping_add(step) % places;
            if let Some(lock) = take(&folder.join(format!("{number}.lock")))? {
                return Ok(Some(PlaceTaken { lock: Arc::new(lock) }));
            }
        }
        Ok(None)
    }
}

fn take(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    // Alone, so that no one else has it; then shared. The change is not made in one step: if
    // someone comes between, the place is theirs.
    for operation in
        [FlockOperation::NonBlockingLockExclusive, FlockOperation::NonBlockingLockShared]
    {
        match rustix::fs::flock(&file, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(file))
}

/// The path of a place that was taken, for the shim to open.
pub(super) fn path_of(place: &PlaceTaken) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", place.lock.as_raw_fd()))
}

fn name_of(pool: &str) -> String {
    let digest = Sha256::digest(pool);
    digest.iter().take(NAME_BYTES).fold(String::new(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_when_all_who_hold_on_to_it_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Places::new(folder.path().into()), Places::new(folder.path().into()));
        let first = ours.take("pool", 2).unwrap().unwrap();
        let second = theirs.take("pool", 2).unwrap().unwrap();
        assert!(ours.take("pool", 2).unwrap().is_none());
        assert!(ours.take("other pool", 2).unwrap().is_some());
        let shim = File::open(path_of(&first).unwrap()).unwrap();
        rustix::fs::flock(&shim, FlockOperation::NonBlockingLockShared).unwrap();
        drop(first);
        assert!(ours.take("pool", 2).unwrap().is_none());
        drop(shim);
        assert!(ours.take("pool", 2).unwrap().is_some());
        drop(second);
    }
}
