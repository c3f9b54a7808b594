ALTER TABLE tasks DROP COLUMN usage_unknown;
ALTER TABLE tasks DROP COLUMN estimated_tokens;
ALTER TABLE tasks DROP COLUMN estimated_cost_pico_usd;
ALTER TABLE spending DROP COLUMN usage_unknown;
ALTER TABLE spending DROP COLUMN estimated_tokens;
ALTER TABLE spending DROP COLUMN estimated_cost_pico_usd;
DROP TABLE sealed_inputs;
CREATE TABLE private (task INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
PRAGMA user_version = 6;
