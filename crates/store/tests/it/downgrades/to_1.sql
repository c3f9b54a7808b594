DROP TABLE spending;
DROP INDEX tasks_by_parent;
PRAGMA user_version = 1;
