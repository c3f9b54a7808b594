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

fn home() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data").join("polity.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, READ_WRITE).unwrap()
}

fn put(store: &SqliteStore, number: u64) {
    let events = vec![created(&format!("task {number}")), claimed(instance_id(1), 1)];
    store.commit(commit(task_id(number), 0, Some(1), events)).wait().unwrap();
}

/// Every file of the folder with its bytes.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Checks that both ways of opening fail with the reason and change no byte.
fn refused_untouched(path: &Path, expected: &str) {
    let before = contents(path.parent().unwrap());
    for access in [READ_WRITE, StoreAccess::ReadOnly] {
        let error = SqliteStore::open(path, access).unwrap_err();
        let message = format!("{error}; {}", error.hint());
        assert!(message.contains(expected) && message.contains("nothing was changed"), "{message}");
    }
    assert_eq!(contents(path.parent().unwrap()), before);
}

#[test]
fn commits_survive_reopening() {
    let (_folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    drop(store);
    let store = open(&path);
    put(&store, 2);
    let reader = SqliteStore::open(&path, StoreAccess::ReadOnly).unwrap();
    assert_eq!(reader.last_position().wait().unwrap(), JournalPosition(4));
    assert_eq!(
        reader.events(&StreamId::Task(task_id(1)), StreamSequence(0)).wait().unwrap().len(),
        2
    );
}

#[test]
fn two_writers_of_one_file_see_each_other() {
    let (_folder, path) = home();
    let (one, other) = (open(&path), open(&path));
    put(&one, 1);
    let ask = |store: &SqliteStore, expected| {
        store.commit(commit(task_id(1), expected, None, vec![Event::CancelRequested])).wait()
    };
    assert!(ask(&one, 2).is_ok());
    assert!(ask(&other, 3).is_ok());
    let conflict = CommitError::Conflict { expected: StreamSequence(3), actual: StreamSequence(4) };
    assert_eq!(ask(&one, 3), Err(conflict));
    assert!(ask(&one, 4).is_ok());
    let positions: Vec<_> = one
        .headers_after(JournalPosition(0), 100)
        .wait()
        .unwrap()
        .iter()
        .map(|header| header.position.0)
        .collect();
    assert_eq!(positions, [1, 2, 3, 4, 5]);
}

#[test]
fn removal_works_beside_another_writer() {
    let (_folder, path) = home();
    let (worker, cleaner) = (open(&path), open(&path));
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
    assert_eq!(worker.last_position().wait().unwrap(), JournalPosition(6));
}

#[test]
fn relaxed_durability_keeps_the_same_contract() {
    let (_folder, path) = home();
    let store =
        SqliteStore::open(&path, StoreAccess::ReadWrite(CommitDurability::Relaxed)).unwrap();
    put(&store, 1);
    drop(store);
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
}

#[test]
fn opening_a_missing_file_read_only_creates_nothing() {
    let (folder, path) = home();
    let store = SqliteStore::open(&path, StoreAccess::ReadOnly).unwrap();
    assert_eq!(store.last_position().wait().unwrap(), JournalPosition(0));
    assert_eq!(store.task_row(task_id(1)).wait().unwrap(), None);
    let answer = store.commit(commit(task_id(1), 0, None, vec![created("a")])).wait();
    assert!(
        matches!(answer, Err(CommitError::Store(StoreError::NotWritable { .. }))),
        "{answer:?}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn foreign_file_is_refused_unchanged() {
    let (_folder, path) = home();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "not a database").unwrap();
    refused_untouched(&path, "is damaged: it is too short to be a database");
    fs::write(&path, "not a database, and longer than a header".repeat(10)).unwrap();
    refused_untouched(&path, "is damaged: it does not begin as a database does");
}

#[test]
fn truncated_database_is_refused_unchanged() {
    let (_folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    drop(store);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused_untouched(&path, "is damaged: its end is missing");
}

#[test]
fn torn_pages_are_reported() {
    let (_folder, path) = home();
    let store = open(&path);
    for number in 0..200 {
        put(&store, number);
    }
    drop(store);
    let roots: Vec<usize> = {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let mut all = connection.prepare("SELECT rootpage FROM sqlite_schema").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let mut torn = fs::read(&path).unwrap();
    for root in roots {
        torn[(root - 1) * 4096..root * 4096].fill(0x55);
    }
    fs::write(&path, torn).unwrap();
    let store = open(&path);
    let error = store.task_row(task_id(1)).wait().unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    let answer = store.commit(commit(task_id(900), 0, None, vec![created("a")])).wait();
    assert!(matches!(answer, Err(CommitError::Store(StoreError::Damaged { .. }))), "{answer:?}");
}

#[test]
fn newer_database_is_refused_unchanged() {
    let (_folder, path) = home();
    drop(open(&path));
    let mut newer = fs::read(&path).unwrap();
    newer[60..64].copy_from_slice(&99u32.to_be_bytes());
    fs::write(&path, newer).unwrap();
    refused_untouched(&path, "has version 99; this program knows versions up to 6");
}

#[test]
fn newer_version_in_the_write_ahead_log_is_detected() {
    let (_folder, path) = home();
    drop(open(&path));
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "journal_mode", "WAL").unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    assert_ne!(fs::read(&path).unwrap()[63], 99, "the header must not show it yet");
    let error = SqliteStore::open(&path, READ_WRITE).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    let reader = SqliteStore::open(&path, StoreAccess::ReadOnly).unwrap();
    assert!(matches!(reader.last_position().wait(), Err(StoreError::Newer { found: 99, .. })));
}

#[test]
fn restore_is_refused_during_a_write() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let backup = folder.path().join("copy.db");
    store.backup(&backup).unwrap();
    assert_eq!(restore(&backup, &path), Err(StoreError::InUse { path: path.clone() }));
    drop(store);
    assert!(restore(&backup, &path).is_ok());
}

/// Holds the exclusive lock for a moment, as a restore does.
fn alone_for_a_moment(path: &Path) -> std::thread::JoinHandle<()> {
    let lock = fs::File::options().write(true).open(format!("{}.lock", path.display())).unwrap();
    lock.lock().unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(lock);
    })
}

#[test]
fn open_waits_for_a_running_restore() {
    for access in [READ_WRITE, StoreAccess::ReadOnly] {
        let (_folder, path) = home();
        put(&open(&path), 1);
        let restored = fs::read(&path).unwrap();
        let restoring = alone_for_a_moment(&path);
        // During a restore the file may be incomplete.
        fs::write(&path, "half a database").unwrap();
        let at_last = path.clone();
        let opened = std::thread::spawn(move || SqliteStore::open(&at_last, access));
        fs::write(&path, restored).unwrap();
        let store = opened.join().unwrap().unwrap();
        restoring.join().unwrap();
        assert_eq!(store.last_position().wait().unwrap(), JournalPosition(2));
    }
}

#[test]
fn restore_is_refused_during_a_read() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let backup = folder.path().join("copy.db");
    store.backup(&backup).unwrap();
    drop(store);
    let reader = SqliteStore::open(&path, StoreAccess::ReadOnly).unwrap();
    assert_eq!(restore(&backup, &path), Err(StoreError::InUse { path: path.clone() }));
    assert_eq!(reader.last_position().wait().unwrap(), JournalPosition(2));
    drop(reader);
    assert!(restore(&backup, &path).is_ok());
}

#[test]
fn restore_keeps_a_log_without_database() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let backup = folder.path().join("copy.db");
    store.backup(&backup).unwrap();
    drop(store);
    fs::remove_file(&path).unwrap();
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    fs::write(log(&path), "the newest commits").unwrap();
    assert_eq!(restore(&backup, &path), Ok(None));
    let kept = PathBuf::from(format!("{}.before-restore-1", path.display()));
    assert_eq!(fs::read_to_string(log(&kept)).unwrap(), "the newest commits");
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
}

#[test]
fn restore_keeps_the_log_of_an_open_reader() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let backup = folder.path().join("copy.db");
    store.backup(&backup).unwrap();
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM events;").unwrap();
    put(&store, 2);
    drop(store);
    assert_eq!(restore(&backup, &path), Err(StoreError::InUse { path: path.clone() }));
    assert!(!folder.path().join("data/polity.db.restoring").exists());
    drop(reader);
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(4));
    assert!(restore(&backup, &path).is_ok());
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
}

#[test]
fn copy_with_a_separate_log_is_not_restored() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let copy = folder.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(name(&path), name(&copy)).unwrap();
    }
    drop(store);
    let refused = restore(&copy, &path).unwrap_err().to_string();
    assert!(refused.contains("a part of it is in the log beside it"), "{refused}");
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
}

#[test]
fn database_of_another_application_is_refused_unchanged() {
    let (_folder, path) = home();
    drop(open(&path));
    let mut foreign = fs::read(&path).unwrap();
    foreign[68..72].copy_from_slice(&7u32.to_be_bytes());
    fs::write(&path, foreign).unwrap();
    refused_untouched(&path, "is a database, but not one of Polity's");
}

#[test]
fn concurrent_creation_of_the_database_succeeds() {
    let (_folder, path) = home();
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let path = path.clone();
            std::thread::spawn(move || put(&open(&path), number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(16));
}

#[test]
fn backup_is_complete_and_restorable() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    let backup = folder.path().join("copy.db");
    store.backup(&backup).unwrap();
    let again = store.backup(&backup).unwrap_err();
    assert_eq!(again, StoreError::Exists { path: backup.clone() });
    let nowhere = folder.path().join("nowhere").join("copy.db");
    assert!(matches!(store.backup(&nowhere), Err(StoreError::Missing { .. })));

    put(&store, 2);
    drop(store);
    let kept = restore(&backup, &path).unwrap().unwrap();
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
    assert_eq!(open(&kept).last_position().wait().unwrap(), JournalPosition(4));
}

#[test]
fn invalid_backup_is_not_restored() {
    let (folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    drop(store);
    let bad = folder.path().join("bad.db");
    assert_eq!(restore(&bad, &path), Err(StoreError::Missing { path: bad.clone() }));
    let mut torn = fs::read(&path).unwrap();
    torn.truncate(torn.len() - 4096);
    fs::write(&bad, torn).unwrap();
    let before = contents(path.parent().unwrap());
    assert!(matches!(restore(&bad, &path), Err(StoreError::Damaged { .. })));
    assert_eq!(contents(path.parent().unwrap()), before);
    assert_eq!(open(&path).last_position().wait().unwrap(), JournalPosition(2));
}

/// Downgrades a database to version 5.
const TO_THE_FIFTH: &str = "DROP INDEX tasks_by_request; ALTER TABLE tasks DROP COLUMN request; \
     ALTER TABLE tasks DROP COLUMN shared_with; PRAGMA user_version = 5";

/// Downgrades a database from version 5 to 4.
const TO_THE_FOURTH: &str = "\
     CREATE TABLE old_events (position INTEGER PRIMARY KEY AUTOINCREMENT, stream BLOB NOT NULL, \
       sequence INTEGER NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT; \
     INSERT INTO old_events SELECT position, key, sequence, at, body \
       FROM events JOIN streams USING (stream); \
     DROP TABLE events; DROP TABLE streams; ALTER TABLE old_events RENAME TO events; \
     UPDATE sqlite_sequence SET seq = max(seq, (SELECT position FROM removed)); \
     DROP TABLE removed; DROP TABLE private; CREATE UNIQUE INDEX events_by_stream ON events (stream, sequence); \
     CREATE TABLE old_executions (execution_id BLOB PRIMARY KEY, task_id BLOB NOT NULL, \
       started_position INTEGER NOT NULL, agent TEXT NOT NULL, state TEXT NOT NULL, \
       body TEXT NOT NULL) STRICT, WITHOUT ROWID; \
     INSERT INTO old_executions SELECT execution_id, task_id, started_position, agent, state, body \
       FROM executions JOIN tasks ON created_position = task; \
     DROP TABLE executions; ALTER TABLE old_executions RENAME TO executions; \
     CREATE INDEX executions_by_task ON executions (task_id, started_position); \
     CREATE TABLE old_messages (task_id BLOB NOT NULL, ordinal INTEGER NOT NULL, \
       position INTEGER NOT NULL, role TEXT NOT NULL, PRIMARY KEY (task_id, ordinal)) \
       STRICT, WITHOUT ROWID; \
     INSERT INTO old_messages SELECT task_id, ordinal, position, role \
       FROM messages JOIN tasks ON created_position = task; \
     DROP TABLE messages; ALTER TABLE old_messages RENAME TO messages; \
     CREATE TABLE old_checkpoints (task_id BLOB NOT NULL, sequence INTEGER NOT NULL, \
       checkpoint_id BLOB NOT NULL, position INTEGER NOT NULL, node TEXT NOT NULL, \
       message_count INTEGER NOT NULL, awaiting_human INTEGER NOT NULL, \
       created_at INTEGER NOT NULL, PRIMARY KEY (task_id, sequence)) STRICT, WITHOUT ROWID; \
     INSERT INTO old_checkpoints SELECT task_id, sequence, checkpoint_id, position, node, \
       checkpoints.message_count, awaiting_human, checkpoints.created_at \
       FROM checkpoints JOIN tasks ON created_position = task; \
     DROP TABLE checkpoints; ALTER TABLE old_checkpoints RENAME TO checkpoints; \
     PRAGMA user_version = 4";

/// Downgrades a database from version 4 to 3.
const TO_THE_THIRD: &str = "DROP TABLE pins; DROP INDEX tasks_by_origin; \
     DROP INDEX tasks_by_deadline; ALTER TABLE tasks DROP COLUMN forked_from; \
     ALTER TABLE tasks DROP COLUMN review_deadline; PRAGMA user_version = 3";

/// Downgrades a database from version 3 to 1.
const TO_THE_FIRST: &str =
    "DROP TABLE spending; DROP INDEX tasks_by_parent; PRAGMA user_version = 1";

fn make_older(path: &Path, steps: &[&str]) {
    let older = rusqlite::Connection::open(path).unwrap();
    older.execute_batch(&steps.join("; ")).unwrap();
    older.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

#[test]
fn older_database_is_migrated_without_loss() {
    let (_folder, path) = home();
    let store = open(&path);
    for number in 1..=3 {
        put(&store, number);
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
    make_older(&path, &[TO_THE_FIFTH, TO_THE_FOURTH, TO_THE_THIRD, TO_THE_FIRST]);
    // A user of the old tables blocks their migration.
    let lock = fs::File::open(format!("{}.lock", path.display())).unwrap();
    lock.lock_shared().unwrap();
    let refused = SqliteStore::open(&path, READ_WRITE).unwrap_err();
    assert_eq!(refused, StoreError::InUse { path: path.clone() });
    drop(lock);
    let store = SqliteStore::open(&path, StoreAccess::ReadOnly).unwrap();
    assert_eq!(store.spending().wait().unwrap(), spent);
    assert_eq!(store.last_position().wait().unwrap(), JournalPosition(15));
    assert_eq!(all(&store), before);
}

#[test]
fn migration_from_version_3_adds_definition_pins() {
    let (_folder, path) = home();
    let store = open(&path);
    put(&store, 1);
    put(&store, 2);
    drop(store);
    let pins = |path: &Path| -> Vec<(Vec<u8>, u64)> {
        let connection = rusqlite::Connection::open(path).unwrap();
        let mut all = connection.prepare("SELECT * FROM pins").unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = pins(&path);
    assert_eq!(before.iter().map(|pin| pin.1).collect::<Vec<_>>(), [1, 3]);
    make_older(&path, &[TO_THE_FIFTH, TO_THE_FOURTH, TO_THE_THIRD]);
    let store = open(&path);
    let row = store.task_row(task_id(1)).wait().unwrap().unwrap();
    assert_eq!((row.forked_from, row.review_deadline), (None, None));
    put(&store, 3);
    drop(store);
    assert_eq!(pins(&path)[..2], before);
}

#[test]
fn closing_removes_the_log_while_a_change_feed_is_alive() {
    let (_folder, path) = home();
    let store = open(&path);
    let mut feed = store.changes(JournalPosition(0));
    put(&store, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    assert_eq!(runtime.block_on(feed.next()).unwrap().len(), 2);
    drop(store);
    assert!(!PathBuf::from(format!("{}-wal", path.display())).exists());
    assert!(matches!(runtime.block_on(feed.next()), Err(StoreError::Closed)));
}
