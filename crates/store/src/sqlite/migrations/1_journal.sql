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
