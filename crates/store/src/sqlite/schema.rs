//! The tables, version by version. A version that was released is never edited: the next one
//! follows it.

use rusqlite::{Connection, TransactionBehavior};

/// Marks a file as ours: "POLI".
pub(super) const APPLICATION_ID: u32 = 0x504f_4c49;

/// The newest version of the tables that this program knows.
#[expect(clippy::cast_possible_truncation, reason = "there are a few")]
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Each entry leads from its index to the next version.
const MIGRATIONS: [&str; 6] = [
    r"
    -- What happened. Everything below is derived from it.
    CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        stream   BLOB    NOT NULL,
        sequence INTEGER NOT NULL,
        at       INTEGER NOT NULL,
        body     TEXT    NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX events_by_stream ON events (stream, sequence);

    -- A task is found by its age, which is where its creation stands, and by its id.
    CREATE TABLE tasks (
        created_position INTEGER PRIMARY KEY,
        task_id          BLOB    NOT NULL UNIQUE,
        status           TEXT    NOT NULL,
        assigned_agent   TEXT    NOT NULL,
        owner            BLOB,
        epoch            INTEGER NOT NULL,
        created_at       INTEGER NOT NULL,
        started_at       INTEGER,
        completed_at     INTEGER,
        error_code       TEXT,
        class            TEXT,
        retention_days   INTEGER,
        parent_task_id   BLOB,
        input_tokens     INTEGER NOT NULL,
        output_tokens    INTEGER NOT NULL,
        cost_pico_usd    INTEGER NOT NULL,
        message_count    INTEGER NOT NULL,
        checkpoint_count INTEGER NOT NULL,
        answer_position  INTEGER,
        result_position  INTEGER,
        failure_position INTEGER
    ) STRICT;
    -- Only the living are looked for by status and owner, and they are few.
    CREATE INDEX living_tasks ON tasks (status, owner)
        WHERE status IN ('pending', 'running', 'awaiting_human');

    CREATE TABLE executions (
        execution_id     BLOB    PRIMARY KEY,
        task_id          BLOB    NOT NULL,
        started_position INTEGER NOT NULL,
        agent            TEXT    NOT NULL,
        state            TEXT    NOT NULL,
        body             TEXT    NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX executions_by_task ON executions (task_id, started_position);

    -- Messages are stored once, in the journal; this says where.
    CREATE TABLE messages (
        task_id  BLOB    NOT NULL,
        ordinal  INTEGER NOT NULL,
        position INTEGER NOT NULL,
        role     TEXT    NOT NULL,
        PRIMARY KEY (task_id, ordinal)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE checkpoints (
        task_id        BLOB    NOT NULL,
        sequence       INTEGER NOT NULL,
        checkpoint_id  BLOB    NOT NULL,
        position       INTEGER NOT NULL,
        node           TEXT    NOT NULL,
        message_count  INTEGER NOT NULL,
        awaiting_human INTEGER NOT NULL,
        created_at     INTEGER NOT NULL,
        PRIMARY KEY (task_id, sequence)
    ) STRICT, WITHOUT ROWID;

    -- What tasks have pinned, by the digest of its canonical form.
    CREATE TABLE definitions (
        digest BLOB PRIMARY KEY,
        json   TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    r"
    -- What model calls used, by day (counted from 1970 in UTC) and agent. It outlives the tasks.
    CREATE TABLE spending (
        day           INTEGER NOT NULL,
        agent         TEXT    NOT NULL,
        calls         INTEGER NOT NULL,
        input_tokens  INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cost_pico_usd INTEGER NOT NULL,
        PRIMARY KEY (day, agent)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO spending
        SELECT events.at / 86400000000, tasks.assigned_agent, count(*),
               sum(body ->> '$.usage.input_tokens'), sum(body ->> '$.usage.output_tokens'),
               sum(body ->> '$.usage.cost_pico_usd')
        FROM events JOIN tasks ON substr(events.stream, 2) = tasks.task_id
        WHERE substr(events.stream, 1, 1) = x'74' AND body ->> '$.type' = 'model_answered'
        GROUP BY 1, 2;
",
    r"
    -- The parts of a task are found by the task.
    CREATE INDEX tasks_by_parent ON tasks (parent_task_id) WHERE parent_task_id IS NOT NULL;
",
    r"
    -- The task that a fork began in, and until when a person has time to answer.
    ALTER TABLE tasks ADD COLUMN forked_from BLOB;
    ALTER TABLE tasks ADD COLUMN review_deadline INTEGER;
    CREATE INDEX tasks_by_origin ON tasks (forked_from) WHERE forked_from IS NOT NULL;
    CREATE INDEX tasks_by_deadline ON tasks (review_deadline) WHERE review_deadline IS NOT NULL;

    -- Who holds on to a definition, by where the task's creation stands.
    CREATE TABLE pins (
        digest           BLOB    NOT NULL,
        created_position INTEGER NOT NULL,
        PRIMARY KEY (digest, created_position)
    ) STRICT, WITHOUT ROWID;
    INSERT OR IGNORE INTO pins
        SELECT unhex(pin.value ->> '$.digest'), tasks.created_position
        FROM tasks JOIN events ON events.position = tasks.created_position,
             json_each(events.body, '$.pins') AS pin;
",
    r"
    -- A stream is known by where it begins, which is a small number that only grows. What belongs to
    -- tasks that are at work together then lies together, however random their ids are, and a commit
    -- touches few pages.
    CREATE TABLE streams (
        stream INTEGER PRIMARY KEY,
        key    BLOB    NOT NULL UNIQUE
    ) STRICT;
    INSERT INTO streams SELECT min(position), stream FROM events GROUP BY stream;

    -- Positions are never used again. This is the last one of those that were removed.
    CREATE TABLE removed (position INTEGER NOT NULL) STRICT;
    INSERT INTO removed SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events';

    CREATE TABLE new_events (
        position INTEGER PRIMARY KEY,
        stream   INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        at       INTEGER NOT NULL,
        body     TEXT    NOT NULL
    ) STRICT;
    INSERT INTO new_events
        SELECT position, streams.stream, sequence, at, body
        FROM events JOIN streams ON streams.key = events.stream ORDER BY position;
    DROP TABLE events;
    ALTER TABLE new_events RENAME TO events;
    CREATE UNIQUE INDEX events_by_stream ON events (stream, sequence);

    CREATE TABLE new_executions (
        started_position INTEGER PRIMARY KEY,
        execution_id     BLOB    NOT NULL UNIQUE,
        task             INTEGER NOT NULL,
        agent            TEXT    NOT NULL,
        state            TEXT    NOT NULL,
        pool             TEXT,
        is_open          INTEGER NOT NULL,
        body             TEXT    NOT NULL
    ) STRICT;
    INSERT INTO new_executions
        SELECT started_position, execution_id, created_position, agent, state, NULL,
               state <> 'idle' AND tasks.completed_at IS NULL, body
        FROM executions JOIN tasks USING (task_id) ORDER BY started_position;
    DROP TABLE executions;
    ALTER TABLE new_executions RENAME TO executions;
    CREATE INDEX executions_by_task ON executions (task);
    CREATE INDEX executions_by_agent ON executions (agent, started_position);
    -- Those that wait for a place or have one, by the pool of places, the first one first.
    CREATE INDEX open_executions ON executions (pool, started_position) WHERE is_open = 1;

    -- What must not be seen in the journal and is needed until a task ends.
    CREATE TABLE private (
        task INTEGER PRIMARY KEY,
        text TEXT    NOT NULL
    ) STRICT;

    CREATE TABLE new_messages (
        task     INTEGER NOT NULL,
        ordinal  INTEGER NOT NULL,
        position INTEGER NOT NULL,
        role     TEXT    NOT NULL,
        PRIMARY KEY (task, ordinal)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO new_messages
        SELECT created_position, ordinal, position, role
        FROM messages JOIN tasks USING (task_id) ORDER BY created_position, ordinal;
    DROP TABLE messages;
    ALTER TABLE new_messages RENAME TO messages;

    CREATE TABLE new_checkpoints (
        task           INTEGER NOT NULL,
        sequence       INTEGER NOT NULL,
        checkpoint_id  BLOB    NOT NULL,
        position       INTEGER NOT NULL,
        node           TEXT    NOT NULL,
        message_count  INTEGER NOT NULL,
        awaiting_human INTEGER NOT NULL,
        created_at     INTEGER NOT NULL,
        PRIMARY KEY (task, sequence)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO new_checkpoints
        SELECT tasks.created_position, sequence, checkpoint_id, position, node,
               checkpoints.message_count, awaiting_human, checkpoints.created_at
        FROM checkpoints JOIN tasks USING (task_id) ORDER BY 1, sequence;
    DROP TABLE checkpoints;
    ALTER TABLE new_checkpoints RENAME TO checkpoints;
",
    r"
    -- Tasks that were given the same find each other, and may share a run.
    ALTER TABLE tasks ADD COLUMN request BLOB;
    ALTER TABLE tasks ADD COLUMN shared_with BLOB;
    CREATE INDEX tasks_by_request ON tasks (request, created_at) WHERE request IS NOT NULL;
",
];

/// Brings the tables up to date. Several processes may try at once: the lock lets one through at a
/// time, and the others find nothing left to do.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    if version(connection)? >= VERSION {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (index, migration) in (0u32..).zip(MIGRATIONS) {
        if version(&transaction)? == index {
            transaction.execute_batch(migration)?;
            transaction.pragma_update(None, "user_version", index + 1)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()?;
    // The version must stand in the file itself, where it is checked before anything is opened.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}

/// The version of the tables; 0 before there are any.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
