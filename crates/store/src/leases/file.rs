//! Leases as file locks.
//!
//! Each instance holds a lock on a file of its own. The operating system releases the lock when the
//! process ends, however it ends, so an instance is dead exactly when its lock can be taken.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polity_files::{
    FileAccess, RegularFileError, create_file, create_folder, open_regular_file, remove_tree,
};
use polity_model::event::OwnerEpoch;
use polity_model::ids::InstanceId;

use super::{Lease, LeaseError, Leases};
use crate::StoreFuture;

/// Instance ids are random and leased once, so every lease is the first of its instance.
const ONLY_EPOCH: OwnerEpoch = OwnerEpoch(1);

/// The folder of the lock files. Checking one takes microseconds, so every call is inline.
#[derive(Debug, Clone)]
pub struct FileLeases {
    folder: PathBuf,
}

#[derive(Debug)]
struct FileLease {
    instance: InstanceId,
    path: PathBuf,
    /// Holds the lock while it is open.
    _lock: File,
}

impl FileLeases {
    /// Uses this folder, which need not exist yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Takes the lock before the file gets its name, so that a named file is always locked.
    fn lock(&self, instance: InstanceId) -> io::Result<Option<FileLease>> {
        create_folder(&self.folder, FileAccess::Private)?;
        let path = self.path(instance);
        if is_locked(&path)? {
            return Ok(None);
        }
        let unnamed = path.with_extension("new");
        let lock = create_file(&unnamed, FileAccess::Private)?;
        lock.try_lock()?;
        fs::rename(&unnamed, &path)?;
        Ok(Some(FileLease { instance, path, _lock: lock }))
    }

    fn locked_instances(&self) -> io::Result<Vec<InstanceId>> {
        let mut locked = Vec::new();
        for (instance, path) in self.lock_files()? {
            if is_locked(&path)? {
                locked.push(instance);
            }
        }
        Ok(locked)
    }

    fn remove_unlocked(&self) -> io::Result<()> {
        for (_, path) in self.lock_files()? {
            if !is_locked(&path)? {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    fn lock_files(&self) -> io::Result<Vec<(InstanceId, PathBuf)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_lock = path.extension().is_some_and(|extension| extension == "lock");
            let instance = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            if let (true, Some(instance)) = (is_lock, instance) {
                files.push((instance, path));
            }
        }
        Ok(files)
    }

    fn path(&self, instance: InstanceId) -> PathBuf {
        self.folder.join(format!("{instance}.lock"))
    }

    fn failed(&self, error: &io::Error) -> LeaseError {
        LeaseError::Failed(format!("{}: {error}", self.folder.display()))
    }
}

impl Leases for FileLeases {
    fn acquire(&self, instance: InstanceId) -> StoreFuture<'_, Box<dyn Lease>, LeaseError> {
        let lease = match self.lock(instance) {
            Ok(Some(lease)) => Ok(Box::new(lease) as _),
            Ok(None) => Err(LeaseError::Held(instance)),
            Err(error) => Err(self.failed(&error)),
        };
        StoreFuture::ready(lease)
    }

    fn is_alive(&self, instance: InstanceId) -> StoreFuture<'_, bool, LeaseError> {
        let is_locked = is_locked(&self.path(instance));
        StoreFuture::ready(is_locked.map_err(|error| self.failed(&error)))
    }

    fn live_instances(&self) -> StoreFuture<'_, Vec<InstanceId>, LeaseError> {
        StoreFuture::ready(self.locked_instances().map_err(|error| self.failed(&error)))
    }

    fn remove_ended(&self) -> StoreFuture<'_, (), LeaseError> {
        StoreFuture::ready(self.remove_unlocked().map_err(|error| self.failed(&error)))
    }
}

impl Lease for FileLease {
    fn instance(&self) -> InstanceId {
        self.instance
    }

    fn epoch(&self) -> OwnerEpoch {
        ONLY_EPOCH
    }

    fn renew(&self) -> StoreFuture<'_, (), LeaseError> {
        StoreFuture::ready(Ok(()))
    }

    fn renew_interval(&self) -> Option<Duration> {
        None
    }
}

impl Drop for FileLease {
    fn drop(&mut self) {
        // Another process removes a file that is left.
        let _ = fs::remove_file(&self.path);
    }
}

/// True if a process holds the lock. Tries a shared lock, so that two processes that check at the
/// same moment do not mistake each other for the owner.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match open_regular_file(path) {
        // No instance makes a FIFO, which would block an ordinary open, or a folder.
        Err(RegularFileError::NotRegular(_)) => return Ok(false),
        Err(RegularFileError::Io(error)) if error.kind() == ErrorKind::NotFound => {
            return Ok(false);
        }
        file => file?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_ended_keeps_live_leases_and_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let leases = FileLeases::new(folder.path());
        let live = leases.acquire(InstanceId::from_random_bytes([1; 16])).wait().unwrap();
        let dead = InstanceId::from_random_bytes([2; 16]);
        fs::write(leases.path(dead), "").unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        leases.remove_ended().wait().unwrap();
        assert!(leases.is_alive(live.instance()).wait().unwrap());
        assert!(!leases.path(dead).exists());
        assert!(folder.path().join("notes.txt").exists());
    }

    #[test]
    fn fifo_as_lock_file_blocks_nobody_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let leases = FileLeases::new(folder.path());
        let instance = InstanceId::from_random_bytes([3; 16]);
        let path = leases.path(instance);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(!leases.is_alive(instance).wait().unwrap());
        leases.remove_ended().wait().unwrap();
        assert!(!path.exists());
    }
}
