-- Tasks that were given the same find each other, and may share a run.
ALTER TABLE tasks ADD COLUMN request BLOB;
ALTER TABLE tasks ADD COLUMN shared_with BLOB;
CREATE INDEX tasks_by_request ON tasks (request, created_at) WHERE request IS NOT NULL;
