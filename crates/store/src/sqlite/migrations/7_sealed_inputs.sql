-- The unmasked inputs of tasks that have not ended, encrypted. The key is a file of this name beside
-- the database. The rows of the table `private` are moved here by the program, which has the keys.
CREATE TABLE sealed_inputs (
    task       INTEGER PRIMARY KEY,
    key        BLOB    NOT NULL,
    ciphertext BLOB    NOT NULL
) STRICT;
