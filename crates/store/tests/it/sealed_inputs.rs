//! Sealed inputs on disk: encrypted, and unreadable once their task has ended.

use std::fs;
use std::path::{Path, PathBuf};

use polity_model::event::Event;
use polity_store::{
    Commit, CommitDurability, CommitError, SqliteStore, Store, StoreAccess, StoreError, restore,
};
use polity_testkit::secret_files::files_with_secret;
use polity_testkit::task_fixtures::{claimed, commit, created, instance_id, task_id};
use tempfile::TempDir;

const SECRET: &str = "canary-Zk3Jd8sQ1mP0vX7yT4uW9rB2nC5eH6gL";

/// A folder with a database.
struct SealedHome {
    folder: TempDir,
    path: PathBuf,
}

impl SealedHome {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data/polity.db");
        Self { folder, path }
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path, StoreAccess::ReadWrite(CommitDurability::Full)).unwrap()
    }

    fn reader(&self) -> SqliteStore {
        SqliteStore::open(&self.path, StoreAccess::ReadOnly).unwrap()
    }

    /// The files of the keys.
    fn keys(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path.with_file_name("keys")) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    #[track_caller]
    fn assert_no_secret(&self) {
        assert_eq!(files_with_secret(self.folder.path(), SECRET), Vec::<PathBuf>::new());
    }
}

fn sealed(number: u64) -> Commit {
    let events = vec![created("***"), claimed(instance_id(1), 1)];
    let sealed_input = Some(format!("the key is {SECRET}"));
    Commit { sealed_input, ..commit(task_id(number), 0, Some(1), events) }
}

fn end(store: &SqliteStore, number: u64) {
    store.commit(commit(task_id(number), 2, Some(1), vec![Event::TaskCancelled])).wait().unwrap();
}

fn input(store: &SqliteStore, number: u64) -> Option<String> {
    store.sealed_input(task_id(number)).wait().unwrap()
}

#[test]
fn sealed_input_is_plain_in_no_file_while_readers_keep_the_log() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(sealed(1)).wait().unwrap();
    // An open read transaction keeps every version of the row in the log.
    let reader = rusqlite::Connection::open(&home.path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    home.assert_no_secret();
    assert_eq!(input(&home.reader(), 1), Some(format!("the key is {SECRET}")));
    assert_eq!(home.keys().len(), 1);
    // Another process ends the task.
    end(&home.open(), 1);
    assert_eq!(input(&store, 1), None);
    assert_eq!(home.keys(), Vec::<PathBuf>::new());
    home.assert_no_secret();
}

#[test]
fn commits_without_sealed_input_create_no_key() {
    let home = SealedHome::new();
    let events = vec![created("plain"), claimed(instance_id(1), 1)];
    let store = home.open();
    store.commit(commit(task_id(1), 0, Some(1), events)).wait().unwrap();
    end(&store, 1);
    assert!(!home.path.with_file_name("keys").exists());
}

#[test]
fn refused_commit_leaves_no_key() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(sealed(1)).wait().unwrap();
    let kept = home.keys();
    let refused = store.commit(sealed(1)).wait();
    assert!(matches!(refused, Err(CommitError::Conflict { .. })), "{refused:?}");
    assert_eq!(home.keys(), kept);
    assert!(input(&store, 1).is_some());
}

#[test]
fn key_left_by_a_crash_is_swept_by_the_next_writer() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(sealed(1)).wait().unwrap();
    store.commit(sealed(2)).wait().unwrap();
    // The process dies after the end of task 1 is durable, and before its key is destroyed.
    let before: Vec<_> =
        home.keys().into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    end(&store, 1);
    drop(store);
    for (key, path) in before {
        fs::write(path, key).unwrap();
    }
    assert_eq!(home.keys().len(), 2);
    assert!(input(&home.reader(), 2).is_some());
    assert_eq!(home.keys().len(), 2, "a reader changes nothing");
    let store = home.open();
    assert_eq!(home.keys().len(), 1);
    assert!(input(&store, 2).is_some());
}

#[test]
fn lost_key_reads_as_no_input_and_a_foreign_one_as_damage() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(sealed(1)).wait().unwrap();
    let key = home.keys().remove(0);
    fs::write(&key, [7; 32]).unwrap();
    let read = store.sealed_input(task_id(1)).wait();
    assert!(matches!(read, Err(StoreError::Unreadable { .. })), "{read:?}");
    fs::remove_file(key).unwrap();
    assert_eq!(input(&store, 1), None);
}

#[test]
fn backup_has_no_sealed_input() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(sealed(1)).wait().unwrap();
    let copy = home.folder.path().join("copy.db");
    store.backup(&copy).unwrap();
    drop(store);
    let count = |path: &Path| -> u32 {
        let copy = rusqlite::Connection::open(path).unwrap();
        copy.query_row("SELECT count(*) FROM sealed_inputs", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count(&home.path), count(&copy)), (1, 0));
    home.assert_no_secret();
    restore(&copy, &home.path).unwrap();
    assert_eq!(input(&home.open(), 1), None);
}

#[test]
fn plain_inputs_of_version_6_are_encrypted_and_leave_no_trace() {
    let home = SealedHome::new();
    let store = home.open();
    store.commit(Commit { sealed_input: None, ..sealed(1) }).wait().unwrap();
    drop(store);
    let older = rusqlite::Connection::open(&home.path).unwrap();
    older.execute_batch(include_str!("downgrades/to_6.sql")).unwrap();
    let text = format!("the key is {SECRET}");
    older.execute("INSERT INTO private VALUES (1, ?1)", [&text]).unwrap();
    drop(older);
    assert!(!files_with_secret(home.folder.path(), SECRET).is_empty());
    let store = home.open();
    home.assert_no_secret();
    assert_eq!(input(&store, 1), Some(text));
}
