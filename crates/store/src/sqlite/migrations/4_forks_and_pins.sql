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
