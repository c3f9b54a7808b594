//! Which processes are alive.
//!
//! Every process that performs work holds a lock on a file of its own. The operating system lets
//! go of the lock when the process ends, however it ends, so an owner is dead exactly when its
//! lock can be taken.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use polity_model::ids::InstanceId;

/// The folder in which processes show that they are alive.
#[derive(Debug, Clone)]
pub struct Instances {
    folder: PathBuf,
}

/// This process's own sign of life. It ends when this is dropped.
#[derive(Debug)]
pub struct Instance {
    id: InstanceId,
    path: PathBuf,
    /// Holds the lock for as long as it is open.
    _lock: File,
}

impl Instances {
    /// Uses this folder, which need not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Shows that this process is alive under the given id.
    ///
    /// The lock is taken before the file gets its name, so that no one ever sees a living process
    /// without its lock.
    pub fn register(&self, id: InstanceId) -> io::Result<Instance> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(id);
        let unnamed = path.with_extension("new");
        let lock = File::create_new(&unnamed)?;
        lock.try_lock()?;
        fs::rename(&unnamed, &path)?;
        Ok(Instance { id, path, _lock: lock })
    }

    /// Whether that process is alive.
    pub fn is_alive(&self, id: InstanceId) -> io::Result<bool> {
        is_locked(&self.path(id))
    }

    /// The processes that are alive.
    pub fn living(&self) -> io::Result<Vec<InstanceId>> {
        let mut living = Vec::new();
        for (id, path) in self.files()? {
            if is_locked(&path)? {
                living.push(id);
            }
        }
        Ok(living)
    }

    /// Removes what dead processes left behind.
    pub fn sweep(&self) -> io::Result<()> {
        for (_, path) in self.files()? {
            if !is_locked(&path)? {
                remove(&path)?;
            }
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<(InstanceId, PathBuf)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let is_lock = path.extension().is_some_and(|extension| extension == "lock");
            let id = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            if let (true, Some(id)) = (is_lock, id) {
                files.push((id, path));
            }
        }
        Ok(files)
    }

    fn path(&self, id: InstanceId) -> PathBuf {
        self.folder.join(format!("{id}.lock"))
    }
}

impl Instance {
    /// The id of this process.
    pub fn id(&self) -> InstanceId {
        self.id
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A file that stays is swept by another process later.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether someone holds the lock. A shared lock is tried, so that two who ask at the same moment
/// do not take each other for the living owner.
fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_lives_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let instances = Instances::at(folder.path().join("instances"));
        let (a, b) =
            (InstanceId::from_random_bytes([1; 16]), InstanceId::from_random_bytes([2; 16]));
        assert!(!instances.is_alive(a).unwrap());
        assert_eq!(instances.living().unwrap(), []);

        let alive = instances.register(a).unwrap();
        assert_eq!(alive.id(), a);
        assert!(instances.is_alive(a).unwrap());
        assert!(!instances.is_alive(b).unwrap());
        assert_eq!(instances.living().unwrap(), [a]);

        drop(alive);
        assert!(!instances.is_alive(a).unwrap());
    }

    #[test]
    fn the_sweep_takes_only_the_dead() {
        let folder = tempfile::tempdir().unwrap();
        let instances = Instances::at(folder.path());
        let alive = instances.register(InstanceId::from_random_bytes([1; 16])).unwrap();
        let dead = InstanceId::from_random_bytes([2; 16]);
        fs::write(instances.path(dead), "").unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        instances.sweep().unwrap();
        assert!(instances.is_alive(alive.id()).unwrap());
        assert!(!instances.path(dead).exists());
        assert!(folder.path().join("notes.txt").exists());
    }
}
