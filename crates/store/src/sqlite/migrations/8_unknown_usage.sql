-- The part of the usage that was not reported: bit 1 of usage_unknown stands for tokens, bit 2 for
-- their cost. Rows of former versions count as known.
ALTER TABLE tasks ADD COLUMN usage_unknown INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN estimated_cost_pico_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spending ADD COLUMN usage_unknown INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spending ADD COLUMN estimated_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE spending ADD COLUMN estimated_cost_pico_usd INTEGER NOT NULL DEFAULT 0;
