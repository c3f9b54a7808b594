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
