DROP INDEX tasks_by_request;
ALTER TABLE tasks DROP COLUMN request;
ALTER TABLE tasks DROP COLUMN shared_with;
PRAGMA user_version = 5;
