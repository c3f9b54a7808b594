-- The item of its parent's map that a task performs.
ALTER TABLE tasks ADD COLUMN map_item INTEGER;
