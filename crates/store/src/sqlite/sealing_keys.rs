//! Encryption of sealed inputs, each with a key in a file of its own.
//!
//! The database holds the encrypted text and the name of the key. SQLite may keep copies of a
//! deleted row in the log, in free pages or in an unfinished backup. Without the key, which is
//! destroyed when the task ends, all of them are unreadable.
//!
//! A key is durable before the commit that refers to it. A process that dies in between, or between
//! the end of a task and the destruction of its key, leaves a key without a row. The next writer
//! removes it when it opens the database.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use polity_files::{
    FileAccess, RegularFileError, create_file, create_folder, open_regular_file_for_writing,
    read_regular_file, remove_tree,
};
use polity_model::ids::TaskId;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use super::connection::io_error;
use crate::StoreError;

/// The folder of the keys, beside the database.
const FOLDER: &str = "keys";

const KEY_BYTES: usize = 32;

/// The name of a key. It is random, so two attempts to create the same task do not share one.
pub(super) type KeyId = [u8; 16];

/// An encrypted input.
#[derive(Debug)]
pub(super) struct SealedRow {
    pub(super) key: KeyId,
    pub(super) ciphertext: Vec<u8>,
}

/// The folder of the keys.
#[derive(Debug, Clone)]
pub(super) struct SealingKeys {
    folder: PathBuf,
}

/// The encrypted inputs of a batch of commits. Their keys are durable.
#[derive(Debug, Default)]
pub(super) struct SealedBatch {
    /// By the index of the commit. A failure concerns its commit alone.
    rows: BTreeMap<usize, Result<SealedRow, StoreError>>,
    /// While it is held, no process removes a key that has no row yet.
    _permit: Option<File>,
}

impl SealingKeys {
    pub(super) fn beside(database: &Path) -> Self {
        Self { folder: database.with_file_name(FOLDER) }
    }

    /// Encrypts inputs, each with a new key. Costs nothing if there are none.
    pub(super) fn seal_all<'a>(
        &self,
        inputs: impl Iterator<Item = (usize, TaskId, &'a str)>,
    ) -> SealedBatch {
        let mut inputs = inputs.peekable();
        if inputs.peek().is_none() {
            return SealedBatch::default();
        }
        let explain = |error: &io::Error| io_error(&self.folder, error);
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(error) => {
                let rows = inputs.map(|(index, ..)| (index, Err(explain(&error)))).collect();
                return SealedBatch { rows, _permit: None };
            }
        };
        let mut rows: BTreeMap<_, _> = inputs
            .map(|(index, task, text)| (index, self.seal(task, text).map_err(|e| explain(&e))))
            .collect();
        if let Err(error) = permit.sync_all() {
            for row in rows.values_mut() {
                *row = Err(explain(&error));
            }
        }
        SealedBatch { rows, _permit: Some(permit) }
    }

    /// The lock under which keys are created.
    fn permit(&self) -> io::Result<File> {
        create_folder(&self.folder, FileAccess::Private)?;
        let folder = File::open(&self.folder)?;
        folder.lock_shared().map(|()| folder)
    }

    /// Encrypts an input with a new key.
    fn seal(&self, task: TaskId, text: &str) -> io::Result<SealedRow> {
        let failed = |_| io::Error::other("the system's random source failed");
        let (mut key, mut id, random) = ([0; KEY_BYTES], KeyId::default(), SystemRandom::new());
        random.fill(&mut key).and_then(|()| random.fill(&mut id)).map_err(failed)?;
        let mut file = create_file(&self.path(id), FileAccess::Private)?;
        file.write_all(&key).and_then(|()| file.sync_all())?;
        let mut ciphertext = text.as_bytes().to_vec();
        UnboundKey::new(&CHACHA20_POLY1305, &key)
            .and_then(|key| {
                let (key, task) = (LessSafeKey::new(key), Aad::from(task.as_bytes()));
                key.seal_in_place_append_tag(only_nonce(), task, &mut ciphertext)
            })
            .map_err(|_| io::Error::other("the input cannot be encrypted"))?;
        Ok(SealedRow { key: id, ciphertext })
    }

    /// Decrypts an input. None if its key does not exist any more.
    pub(super) fn open(&self, task: TaskId, row: SealedRow) -> io::Result<Option<String>> {
        let key = read_regular_file(&self.path(row.key), KEY_BYTES as u64);
        let key = match key.map_err(io::Error::from) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            key => key?,
        };
        let damaged = || io::Error::new(ErrorKind::InvalidData, "the sealed input is damaged");
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|_| damaged())?;
        let mut bytes = row.ciphertext;
        let length = LessSafeKey::new(key)
            .open_in_place(only_nonce(), Aad::from(task.as_bytes()), &mut bytes)
            .map_err(|_| damaged())?
            .len();
        bytes.truncate(length);
        String::from_utf8(bytes).map(Some).map_err(|_| damaged())
    }

    /// Destroys a key: overwrites its file, then removes it.
    pub(super) fn destroy(&self, key: KeyId) -> io::Result<()> {
        let path = self.path(key);
        let overwritten = match open_regular_file_for_writing(&path) {
            // It holds no key, and opening a FIFO in the ordinary way would block.
            Err(RegularFileError::NotRegular(_)) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(mut file) => file.write_all(&[0; KEY_BYTES]).and_then(|()| file.sync_data()),
        };
        match overwritten.and_then(|()| remove_tree(&path)) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            destroyed => destroyed,
        }
    }

    /// Destroys the keys that no row refers to, unless a process is creating keys right now.
    /// `live_keys` reads the keys of all rows.
    pub(super) fn sweep(
        &self,
        live_keys: impl FnOnce() -> Result<HashSet<KeyId>, StoreError>,
    ) -> Result<(), StoreError> {
        let failed = |error: io::Error| io_error(&self.folder, &error);
        let found = match self.key_ids() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed)?,
        };
        if found.is_empty() {
            return Ok(());
        }
        let folder = File::open(&self.folder).map_err(failed)?;
        match folder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let live = live_keys()?;
        let mut dead = found.into_iter().filter(|key| !live.contains(key));
        dead.try_for_each(|key| self.destroy(key)).map_err(failed)
    }

    fn key_ids(&self) -> io::Result<Vec<KeyId>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let id = name.to_str().filter(|name| name.len() == 32);
            ids.extend(id.and_then(|id| u128::from_str_radix(id, 16).ok()).map(u128::to_be_bytes));
        }
        Ok(ids)
    }

    fn path(&self, key: KeyId) -> PathBuf {
        self.folder.join(format!("{:032x}", u128::from_be_bytes(key)))
    }
}

impl SealedBatch {
    /// The encrypted input of a commit, if it has one.
    pub(super) fn row(&self, index: usize) -> Option<&Result<SealedRow, StoreError>> {
        self.rows.get(&index)
    }

    /// The new keys, by the index of the commit.
    pub(super) fn keys(&self) -> impl Iterator<Item = (usize, KeyId)> + '_ {
        self.rows.iter().filter_map(|(index, row)| Some((*index, row.as_ref().ok()?.key)))
    }
}

/// The nonce. A key encrypts one text, so no nonce repeats.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u8) -> TaskId {
        TaskId::from_bytes([number; 16])
    }

    fn keys(folder: &Path) -> SealingKeys {
        SealingKeys::beside(&folder.join("polity.db"))
    }

    #[test]
    fn text_is_readable_only_with_its_key_and_task() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path());
        keys.permit().unwrap();
        let seal = || keys.seal(task(1), "s3cret").unwrap();
        let row = seal();
        assert!(!row.ciphertext.windows(6).any(|bytes| bytes == b"s3cret"));
        let key = row.key;
        assert_eq!(keys.open(task(1), row).unwrap().as_deref(), Some("s3cret"));
        assert_eq!(keys.open(task(2), seal()).unwrap_err().kind(), ErrorKind::InvalidData);
        let row = SealedRow { key, ..seal() };
        assert_eq!(keys.open(task(1), row).unwrap_err().kind(), ErrorKind::InvalidData);
        let row = seal();
        keys.destroy(row.key).unwrap();
        keys.destroy(row.key).unwrap();
        assert_eq!(keys.open(task(1), row).unwrap(), None);
    }

    #[test]
    fn sweep_keeps_live_keys_and_waits_for_creators() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path());
        let sweep = |live: &[KeyId]| {
            keys.sweep(|| Ok(live.iter().copied().collect())).unwrap();
            keys.key_ids().unwrap().len()
        };
        keys.sweep(|| panic!("there is nothing to sweep")).unwrap();
        let batch = keys.seal_all([(3, task(1), "one"), (5, task(2), "two")].into_iter());
        let new: Vec<_> = batch.keys().collect();
        assert_eq!(new.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [3, 5]);
        let live = new[0].1;
        assert_eq!(sweep(&[]), 2);
        drop(batch);
        assert_eq!(sweep(&[live]), 1);
        assert_eq!(sweep(&[]), 0);
    }

    #[test]
    fn fifo_as_key_blocks_neither_a_reader_nor_a_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path());
        keys.permit().unwrap();
        let row = keys.seal(task(1), "text").unwrap();
        let path = keys.path(row.key);
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let error = keys.open(task(1), row).unwrap_err().to_string();
        assert_eq!(error, "it is a FIFO, not a regular file");
        keys.sweep(|| Ok(HashSet::new())).unwrap();
        assert!(!path.exists());
    }
}
