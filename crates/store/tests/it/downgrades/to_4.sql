CREATE TABLE old_events (position INTEGER PRIMARY KEY AUTOINCREMENT, stream BLOB NOT NULL, sequence
    INTEGER NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO old_events SELECT position, key, sequence, at, body FROM events JOIN streams USING
    (stream);
DROP TABLE events;
DROP TABLE streams;
ALTER TABLE old_events RENAME TO events;
UPDATE sqlite_sequence SET seq = max(seq, (SELECT position FROM removed));
DROP TABLE removed;
DROP TABLE private;
CREATE UNIQUE INDEX events_by_stream ON events (stream, sequence);
CREATE TABLE old_executions (execution_id BLOB PRIMARY KEY, task_id BLOB NOT NULL, started_position
    INTEGER NOT NULL, agent TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL) STRICT, WITHOUT
    ROWID;
INSERT INTO old_executions SELECT execution_id, task_id, started_position, agent, state, body FROM
    executions JOIN tasks ON created_position = task;
DROP TABLE executions;
ALTER TABLE old_executions RENAME TO executions;
CREATE INDEX executions_by_task ON executions (task_id, started_position);
CREATE TABLE old_messages (task_id BLOB NOT NULL, ordinal INTEGER NOT NULL, position INTEGER NOT
    NULL, role TEXT NOT NULL, PRIMARY KEY (task_id, ordinal)) STRICT, WITHOUT ROWID;
INSERT INTO old_messages SELECT task_id, ordinal, position, role FROM messages JOIN tasks ON
    created_position = task;
DROP TABLE messages;
ALTER TABLE old_messages RENAME TO messages;
CREATE TABLE old_checkpoints (task_id BLOB NOT NULL, sequence INTEGER NOT NULL, checkpoint_id BLOB
    NOT NULL, position INTEGER NOT NULL, node TEXT NOT NULL, message_count INTEGER NOT NULL,
    awaiting_human INTEGER NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (task_id, sequence))
    STRICT, WITHOUT ROWID;
INSERT INTO old_checkpoints SELECT task_id, sequence, checkpoint_id, position, node,
    checkpoints.message_count, awaiting_human, checkpoints.created_at FROM checkpoints JOIN tasks
    ON created_position = task;
DROP TABLE checkpoints;
ALTER TABLE old_checkpoints RENAME TO checkpoints;
PRAGMA user_version = 4;
