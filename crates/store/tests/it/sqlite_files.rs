//! Database files: damaged, newer, foreign, missing, shared or copied.

use std::fs;
use std::path::{Path, PathBuf};

use polity_model::event::{Event, JournalPosition, StreamId, StreamSequence};
use polity_store::{
    CommitDurability, CommitError, RemovalOutcome, SqliteStore, Store, StoreAccess, StoreError,
    restore,
};
use polity_testkit::task_fixtures::{answered, claimed, commit, created, instance_id, task_id};
use tempfile::TempDir;

const READ_WRITE: StoreAccess = StoreAccess::ReadWrite(CommitDurability::Full);

/// The path of a database in a temporary folder.
struct DatabaseFile {
    folder: TempDir,
    path: PathBuf,
}

impl DatabaseFile {
    /// No file yet.
    fn missing() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join("polity.db");
        Self { folder, path }
    }

    /// A database with this number of tasks, of two events each.
    fn with_tasks(count: u64) -> Self {
        let file = Self::missing();
        let store = file.open();
        (1..=count).for_each(|number| put(&store, number));
        file
    }

    fn open(&self) -> SqliteStore {
        open(&self.path)
    }

    fn reader(&self) -> SqliteStore {
        SqliteStore::open(&self.path, StoreAccess::ReadOnly).unwrap()
    }

    fn backup(&self) -> PathBuf {
        let backup = self.folder.path().join("copy.db");
        self.open().backup(&backup).unwrap();
        backup
    }

    /// Checks that the database is in use and cannot be replaced.
    fn assert_in_use(&self, backup: &Path) {
        assert_eq!(restore(backup, &self.path), Err(StoreError::InUse { path: self.path.clone() }));
    }

    fn assert_last_position(&self, expected: u64) {
        assert_eq!(last_position(&self.open()), expected);
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(&self.path).unwrap();
        change(&mut bytes);
        fs::write(&self.path, bytes).unwrap();
    }

    /// Every file of the folder with its bytes.
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(self.path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }

    /// Checks that opening to read and to write fails with the reason and changes no byte.
    fn assert_refused_unchanged(&self, expected: &str) {
        let before = self.contents();
        for access in [READ_WRITE, StoreAccess::ReadOnly] {
            let error = SqliteStore::open(&self.path, access).unwrap_err();
            let message = format!("{error}; {}", error.hint());
            assert!(
                message.contains(expected) && message.contains("nothing was changed"),
                "{message}"
            );
        }
        assert_eq!(self.contents(), before);
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, READ_WRITE).unwrap()
}

fn put(store: &SqliteStore, number: u64) {
    let events = vec![created(&format!("task {number}")), claimed(instance_id(1), 1)];
    store.commit(commit(task_id(number), 0, Some(1), events)).wait().unwrap();
}

fn last_position(store: &SqliteStore) -> u64 {
    store.last_position().wait().unwrap().0
}

/// A file beside the database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[test]
fn commits_survive_reopening() {
    let file = DatabaseFile::with_tasks(1);
    put(&file.open(), 2);
    let reader = file.reader();
    assert_eq!(last_position(&reader), 4);
    let first = StreamId::Task(task_id(1));
    assert_eq!(reader.events(&first, StreamSequence(0)).wait().unwrap().len(), 2);
}

#[test]
fn two_writers_of_one_file_see_each_other() {
    let file = DatabaseFile::missing();
    let (one, other) = (file.open(), file.open());
    put(&one, 1);
    let ask = |store: &SqliteStore, expected| {
        store.commit(commit(task_id(1), expected, None, vec![Event::CancelRequested])).wait()
    };
    assert!(ask(&one, 2).is_ok());
    assert!(ask(&other, 3).is_ok());
    let conflict = CommitError::Conflict { expected: StreamSequence(3), actual: StreamSequence(4) };
    assert_eq!(ask(&one, 3), Err(conflict));
    assert!(ask(&one, 4).is_ok());
    let headers = one.headers_after(JournalPosition(0), 100).wait().unwrap();
    let positions: Vec<_> = headers.iter().map(|header| header.position.0).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5]);
}

#[cfg(target_os = "linux")]
#[test]
fn second_store_of_a_process_leaves_the_locks_of_the_first() {
    use std::os::unix::fs::MetadataExt;
    let file = DatabaseFile::missing();
    let first = file.open();
    put(&first, 1);
    let inode = format!(":{} ", fs::metadata(&file.path).unwrap().ino());
    let process = format!(" {} ", std::process::id());
    let locks = || {
        let all = fs::read_to_string("/proc/locks").unwrap();
        let ours = |line: &&str| line.contains(&inode) && line.contains(&process);
        all.lines().filter(ours).filter(|line| line.contains("POSIX")).count()
    };
    let before = locks();
    assert!(before > 0);
    for _ in 0..2 {
        drop(file.open());
        drop(file.reader());
    }
    assert_eq!(locks(), before);
    put(&first, 2);
}

#[test]
fn removal_works_beside_another_writer() {
    let file = DatabaseFile::missing();
    let (worker, cleaner) = (file.open(), file.open());
    put(&worker, 1);
    put(&worker, 2);
    let ended = vec![Event::TaskCancelled];
    worker.commit(commit(task_id(1), 2, Some(1), ended)).wait().unwrap();
    let units = vec![vec![task_id(1)], vec![task_id(2)]];
    let answers = cleaner.remove(units).wait().unwrap();
    assert!(matches!(answers[0], RemovalOutcome::Removed { .. }), "{answers:?}");
    assert!(matches!(answers[1], RemovalOutcome::Refused { .. }), "{answers:?}");
    worker.commit(commit(task_id(2), 2, Some(1), vec![Event::TaskStarted])).wait().unwrap();
    // Its cache of the other task is cleared.
    let late = worker.commit(commit(task_id(1), 3, None, vec![Event::CancelRequested])).wait();
    let conflict = CommitError::Conflict { expected: StreamSequence(3), actual: StreamSequence(0) };
    assert_eq!(late, Err(conflict));
    assert_eq!(last_position(&worker), 6);
}

#[test]
fn relaxed_durability_keeps_the_same_contract() {
    let file = DatabaseFile::missing();
    let relaxed = StoreAccess::ReadWrite(CommitDurability::Relaxed);
    put(&SqliteStore::open(&file.path, relaxed).unwrap(), 1);
    file.assert_last_position(2);
}

#[test]
fn opening_a_missing_file_read_only_creates_nothing() {
    let file = DatabaseFile::missing();
    let store = file.reader();
    assert_eq!(last_position(&store), 0);
    assert_eq!(store.task_row(task_id(1)).wait().unwrap(), None);
    let answer = store.commit(commit(task_id(1), 0, None, vec![created("a")])).wait();
    let is_refused = matches!(answer, Err(CommitError::Store(StoreError::NotWritable { .. })));
    assert!(is_refused, "{answer:?}");
    assert_eq!(fs::read_dir(file.folder.path()).unwrap().count(), 0);
}

#[test]
fn foreign_file_is_refused_unchanged() {
    let file = DatabaseFile::missing();
    fs::create_dir_all(file.path.parent().unwrap()).unwrap();
    fs::write(&file.path, "not a database").unwrap();
    file.assert_refused_unchanged("is damaged: it is too short to be a database");
    fs::write(&file.path, "not a database, and longer than a header".repeat(10)).unwrap();
    file.assert_refused_unchanged("is damaged: it does not begin as a database does");
}

#[test]
fn truncated_newer_and_other_databases_are_refused_unchanged() {
    let check = |change: fn(&mut Vec<u8>), expected: &str| {
        let file = DatabaseFile::with_tasks(1);
        file.change(change);
        file.assert_refused_unchanged(expected);
    };
    check(|bytes| bytes.truncate(bytes.len() / 2), "is damaged: its end is missing");
    let newer = "has version 99; this program knows versions up to 9";
    check(|bytes| bytes[60..64].copy_from_slice(&99u32.to_be_bytes()), newer);
    let other = "is a database, but not one of Polity's";
    check(|bytes| bytes[68..72].copy_from_slice(&7u32.to_be_bytes()), other);
}

#[test]
fn torn_pages_are_reported() {
    let file = DatabaseFile::with_tasks(200);
    let roots: Vec<usize> = {
        let connection = rusqlite::Connection::open(&file.path).unwrap();
        let mut all = connection.prepare("SELECT rootpage FROM sqlite_schema").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    file.change(|bytes| {
        for root in roots {
            bytes[(root - 1) * 4096..root * 4096].fill(0x55);
        }
    });
    let store = file.open();
    let error = store.task_row(task_id(1)).wait().unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let answer = store.commit(commit(task_id(900), 0, None, vec![created("a")])).wait();
    assert!(matches!(answer, Err(CommitError::Store(StoreError::Damaged { .. }))), "{answer:?}");
}

#[test]
fn newer_version_in_the_write_ahead_log_is_detected() {
    let file = DatabaseFile::with_tasks(0);
    let newer = rusqlite::Connection::open(&file.path).unwrap();
    newer.pragma_update(None, "journal_mode", "WAL").unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    assert_ne!(fs::read(&file.path).unwrap()[63], 99, "the header must not show it yet");
    let error = SqliteStore::open(&file.path, READ_WRITE).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    let read = file.reader().last_position().wait();
    assert!(matches!(read, Err(StoreError::Newer { found: 99, .. })), "{read:?}");
}

#[test]
fn restore_is_refused_during_a_write_or_read() {
    for access in [READ_WRITE, StoreAccess::ReadOnly] {
        let file = DatabaseFile::with_tasks(1);
        let backup = file.backup();
        let store = SqliteStore::open(&file.path, access).unwrap();
        file.assert_in_use(&backup);
        assert_eq!(last_position(&store), 2);
        drop(store);
        assert!(restore(&backup, &file.path).is_ok());
    }
}

/// Holds the exclusive lock briefly, like a restore.
fn lock_briefly(path: &Path) -> std::thread::JoinHandle<()> {
    let lock = fs::File::options().write(true).open(beside(path, ".lock")).unwrap();
    lock.lock().unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(lock);
    })
}

#[test]
fn open_waits_for_a_running_restore() {
    for access in [READ_WRITE, StoreAccess::ReadOnly] {
        let file = DatabaseFile::with_tasks(1);
        let restored = fs::read(&file.path).unwrap();
        let restoring = lock_briefly(&file.path);
        // During a restore the file may be incomplete.
        fs::write(&file.path, "half a database").unwrap();
        let path = file.path.clone();
        let opened = std::thread::spawn(move || SqliteStore::open(&path, access));
        fs::write(&file.path, restored).unwrap();
        let store = opened.join().unwrap().unwrap();
        restoring.join().unwrap();
        assert_eq!(last_position(&store), 2);
    }
}

#[test]
fn restore_keeps_a_log_without_database() {
    let file = DatabaseFile::with_tasks(1);
    let backup = file.backup();
    fs::remove_file(&file.path).unwrap();
    fs::write(beside(&file.path, "-wal"), "the newest commits").unwrap();
    assert_eq!(restore(&backup, &file.path), Ok(None));
    let kept = beside(&file.path, ".before-restore-1-wal");
    assert_eq!(fs::read_to_string(kept).unwrap(), "the newest commits");
    file.assert_last_position(2);
}

#[test]
fn restore_keeps_the_log_of_an_open_reader() {
    let file = DatabaseFile::with_tasks(1);
    let store = file.open();
    let backup = file.backup();
    let reader = rusqlite::Connection::open(&file.path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    put(&store, 2);
    drop(store);
    file.assert_in_use(&backup);
    assert!(!beside(&file.path, ".restoring").exists());
    drop(reader);
    file.assert_last_position(4);
    assert!(restore(&backup, &file.path).is_ok());
    file.assert_last_position(2);
}

#[test]
fn copy_with_a_separate_log_is_not_restored() {
    let file = DatabaseFile::missing();
    let store = file.open();
    put(&store, 1);
    let copy = file.folder.path().join("copy.db");
    for suffix in ["", "-wal"] {
        fs::copy(beside(&file.path, suffix), beside(&copy, suffix)).unwrap();
    }
    drop(store);
    let refused = restore(&copy, &file.path).unwrap_err().to_string();
    assert!(refused.contains("a part of it is in the log beside it"), "{refused}");
    file.assert_last_position(2);
}

#[test]
fn concurrent_creation_of_the_database_succeeds() {
    let file = DatabaseFile::missing();
    std::thread::scope(|threads| {
        for number in 0..8 {
            let file = &file;
            threads.spawn(move || put(&file.open(), number));
        }
    });
    file.assert_last_position(16);
}

#[test]
fn backup_is_complete_and_restorable() {
    let file = DatabaseFile::with_tasks(1);
    let backup = file.backup();
    let store = file.open();
    let again = store.backup(&backup).unwrap_err();
    assert_eq!(again, StoreError::Exists { path: backup.clone() });
    let nowhere = file.folder.path().join("nowhere").join("copy.db");
    assert!(matches!(store.backup(&nowhere), Err(StoreError::Missing { .. })));

    put(&store, 2);
    drop(store);
    let kept = restore(&backup, &file.path).unwrap().unwrap();
    file.assert_last_position(2);
    assert_eq!(last_position(&open(&kept)), 4);
}

#[test]
fn invalid_backup_is_not_restored() {
    let file = DatabaseFile::with_tasks(1);
    let bad = file.folder.path().join("bad.db");
    assert_eq!(restore(&bad, &file.path), Err(StoreError::Missing { path: bad.clone() }));
    let mut torn = fs::read(&file.path).unwrap();
    torn.truncate(torn.len() - 4096);
    fs::write(&bad, torn).unwrap();
    let before = file.contents();
    assert!(matches!(restore(&bad, &file.path), Err(StoreError::Damaged { .. })));
    assert_eq!(file.contents(), before);
    file.assert_last_position(2);
}

const TO_VERSION_6: &str = include_str!("downgrades/to_6.sql");
const TO_VERSION_5: &str = include_str!("downgrades/to_5.sql");
const TO_VERSION_4: &str = include_str!("downgrades/to_4.sql");
const TO_VERSION_3: &str = include_str!("downgrades/to_3.sql");
const TO_VERSION_1: &str = include_str!("downgrades/to_1.sql");

fn downgrade(path: &Path, steps: &[&str]) {
    let older = rusqlite::Connection::open(path).unwrap();
    older.execute_batch(&steps.concat()).unwrap();
    older.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn older_database_is_migrated_without_loss() {
    let file = DatabaseFile::with_tasks(3);
    let store = file.open();
    for number in 1..=3 {
        let events = vec![Event::TaskStarted, answered("x"), answered("y")];
        store.commit(commit(task_id(number), 2, Some(1), events)).wait().unwrap();
    }
    let spent = store.spending().wait().unwrap();
    assert_eq!(spent[0].calls, 6);
    let all = |store: &SqliteStore| {
        [1, 2, 3].map(|number| {
            let id = task_id(number);
            let events =
                store.events(&StreamId::Task(id), StreamSequence::default()).wait().unwrap();
            let (executions, messages) = (store.executions(id).wait(), store.messages(id).wait());
            let checkpoints = store.checkpoints(id).wait().unwrap();
            (events, executions.unwrap(), messages.unwrap(), checkpoints)
        })
    };
    let before = all(&store);
    drop(store);
    downgrade(&file.path, &[TO_VERSION_6, TO_VERSION_5, TO_VERSION_4, TO_VERSION_3, TO_VERSION_1]);
    // A user of the old tables blocks their migration.
    let lock = fs::File::open(beside(&file.path, ".lock")).unwrap();
    lock.lock_shared().unwrap();
    let refused = SqliteStore::open(&file.path, READ_WRITE).unwrap_err();
    assert_eq!(refused, StoreError::InUse { path: file.path.clone() });
    drop(lock);
    let store = file.reader();
    assert_eq!(store.spending().wait().unwrap(), spent);
    assert_eq!(last_position(&store), 15);
    assert_eq!(all(&store), before);
}

#[test]
fn migration_from_version_3_adds_definition_pins() {
    let file = DatabaseFile::with_tasks(2);
    let pins = || -> Vec<(Vec<u8>, u64)> {
        let connection = rusqlite::Connection::open(&file.path).unwrap();
        let mut all = connection.prepare("SELECT * FROM pins").unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = pins();
    assert_eq!(before.iter().map(|pin| pin.1).collect::<Vec<_>>(), [1, 3]);
    downgrade(&file.path, &[TO_VERSION_6, TO_VERSION_5, TO_VERSION_4, TO_VERSION_3]);
    let store = file.open();
    let row = store.task_row(task_id(1)).wait().unwrap().unwrap();
    assert_eq!((row.forked_from, row.review_deadline), (None, None));
    put(&store, 3);
    drop(store);
    assert_eq!(pins()[..2], before);
}

#[test]
fn closing_removes_the_log_while_a_change_feed_is_alive() {
    let file = DatabaseFile::missing();
    let store = file.open();
    let mut feed = store.changes(JournalPosition(0));
    put(&store, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(feed.next()).unwrap().len(), 2);
    drop(store);
    assert!(!beside(&file.path, "-wal").exists());
    assert!(matches!(runtime.block_on(feed.next()), Err(StoreError::Closed)));
}
