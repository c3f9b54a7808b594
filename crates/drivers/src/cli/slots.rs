//! Concurrency slots, shared by all processes of a home.
//!
//! A slot is a file. Its owner locks it exclusively for a moment, then shares the lock with the
//! shim, which opens the file itself. No descriptor is inherited, and the slot is free when neither
//! Polity nor the shim holds the lock.

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

/// The number of digest bytes in a pool's folder name.
const FOLDER_NAME_BYTES: usize = 16;

/// The slot pools of a home.
#[derive(Debug)]
pub(crate) struct FileSlotPools {
    folder: PathBuf,
    /// The slot to try first, so that callers do not all try the same.
    next: AtomicU32,
}

impl FileSlotPools {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, next: AtomicU32::new(0) }
    }

    /// Acquires a slot of a pool with `slots` slots, if one is free.
    pub(crate) fn acquire(&self, pool: &str, slots: u32) -> io::Result<Option<PlaceTaken>> {
        let folder = self.folder.join(pool_folder_name(pool));
        fs::create_dir_all(&folder)?;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for step in 0..slots {
            let number = first.wrapping_add(step) % slots;
            if let Some(lock) = lock_slot(&folder.join(format!("{number}.lock")))? {
                return Ok(Some(PlaceTaken { lock: Arc::new(lock) }));
            }
        }
        Ok(None)
    }
}

fn lock_slot(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    // An exclusive lock excludes all others; then it is shared. The change is not atomic: if
    // another process gets in between, it has the slot.
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

/// The path of an acquired slot, for the shim to open.
pub(crate) fn slot_path(slot: &PlaceTaken) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", slot.lock.as_raw_fd()))
}

fn pool_folder_name(pool: &str) -> String {
    let digest = Sha256::digest(pool);
    digest.iter().take(FOLDER_NAME_BYTES).fold(String::new(), |mut name, byte| {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_free_when_all_holders_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) =
            (FileSlotPools::new(folder.path().into()), FileSlotPools::new(folder.path().into()));
        let first = ours.acquire("pool", 2).unwrap().unwrap();
        let second = theirs.acquire("pool", 2).unwrap().unwrap();
        assert!(ours.acquire("pool", 2).unwrap().is_none());
        assert!(ours.acquire("other pool", 2).unwrap().is_some());
        let shim = File::open(slot_path(&first).unwrap()).unwrap();
        rustix::fs::flock(&shim, FlockOperation::NonBlockingLockShared).unwrap();
        drop(first);
        assert!(ours.acquire("pool", 2).unwrap().is_none());
        drop(shim);
        assert!(ours.acquire("pool", 2).unwrap().is_some());
        drop(second);
    }
}
