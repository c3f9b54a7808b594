//! Slots as file locks.
//!
//! A slot is a file. The process that takes it locks it exclusively for a moment, then shares the
//! lock with the CLI agent's supervisor process, which opens the file itself: no descriptor is
//! passed on, and the slot is free once both have ended.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use polity_files::{FileAccess, create_folder, open_or_create};
use polity_model::digest::Digest;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{Slot, SlotError, SlotGuard, SlotPools};
use crate::StoreFuture;

/// The number of hexadecimal digits of a pool's digest that name its folder.
const NAME_DIGITS: usize = 32;

/// The slots of all processes of a home. Taking one is a few system calls, so it is inline.
#[derive(Debug)]
pub struct FileSlotPools {
    folder: PathBuf,
    /// The slot to try first. It differs between callers and between processes: if all started
    /// with the same one, each would try every slot that is taken.
    next: AtomicU32,
}

#[derive(Debug)]
struct FileSlot {
    path: PathBuf,
    _lock: File,
}

impl FileSlotPools {
    /// Uses this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), next: AtomicU32::new(std::process::id()) }
    }

    fn take(&self, pool: &str, size: u32) -> io::Result<Option<FileSlot>> {
        let folder = self.folder.join(folder_name(pool));
        create_folder(&folder, FileAccess::Private)?;
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for step in 0..size {
            let number = first.wrapping_add(step) % size;
            if let Some(lock) = lock(&folder.join(format!("{number}.lock")))? {
                // The path as the kernel knows it, for a child in another folder.
                let path = fs::read_link(format!("/proc/self/fd/{}", lock.as_raw_fd()))?;
                return Ok(Some(FileSlot { path, _lock: lock }));
            }
        }
        Ok(None)
    }
}

impl SlotPools for FileSlotPools {
    fn acquire(&self, pool: &str, size: u32) -> StoreFuture<'_, Option<Slot>, SlotError> {
        let taken = self.take(pool, size).map(|slot| slot.map(Slot::new));
        StoreFuture::ready(taken.map_err(|error| {
            let folder = self.folder.display();
            SlotError(format!(
                "no slot can be acquired for a run: {error}; check the folder {folder}"
            ))
        }))
    }
}

impl SlotGuard for FileSlot {
    fn lock_file(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_or_create(path)?;
    // The change from exclusive to shared is not atomic: a process that locks in between wins.
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

fn folder_name(pool: &str) -> String {
    let mut name = Digest::of(pool.as_bytes()).to_string();
    name.truncate(NAME_DIGITS);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_stays_taken_while_a_child_shares_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let pools = FileSlotPools::new(folder.path());
        let acquire = || pools.acquire("pool", 1).wait().unwrap();
        let slot = acquire().unwrap();
        let child = File::open(slot.lock_file().unwrap()).unwrap();
        rustix::fs::flock(&child, FlockOperation::NonBlockingLockShared).unwrap();
        drop(slot);
        assert!(acquire().is_none());
        drop(child);
        assert!(acquire().is_some());
    }

    #[test]
    fn folder_of_a_pool_is_named_by_its_digest() {
        assert_eq!(folder_name("stage"), "c7ff6dcd94d7161eff5da0585684a8d1");
    }
}
