DROP TABLE pins;
DROP INDEX tasks_by_origin;
DROP INDEX tasks_by_deadline;
ALTER TABLE tasks DROP COLUMN forked_from;
ALTER TABLE tasks DROP COLUMN review_deadline;
PRAGMA user_version = 3;
