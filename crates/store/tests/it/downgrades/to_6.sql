DROP TABLE sealed_inputs;
CREATE TABLE private (task INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
PRAGMA user_version = 6;
