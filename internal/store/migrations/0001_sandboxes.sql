CREATE TABLE sandboxes (
	id         TEXT PRIMARY KEY,
	owner      TEXT NOT NULL,
	name       TEXT NOT NULL,
	state      TEXT NOT NULL,
	backend    TEXT NOT NULL,
	expires_at INTEGER, -- nanoseconds since 1970, or null
	record     TEXT NOT NULL, -- sandbox.Sandbox as JSON
	token      BLOB NOT NULL, -- sealed with the key file; see seal.go
	UNIQUE (owner, name)
) STRICT;

CREATE TABLE events (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	sandbox_id TEXT NOT NULL,
	at         INTEGER NOT NULL, -- nanoseconds since 1970
	type       TEXT NOT NULL,
	message    TEXT NOT NULL
) STRICT;

CREATE INDEX events_of_sandbox ON events (sandbox_id, seq);

CREATE TRIGGER events_go_with_sandbox AFTER DELETE ON sandboxes BEGIN
	DELETE FROM events WHERE sandbox_id = old.id;
END;

-- One row: a known text sealed with the key file, which tells whether the key
-- beside the database is the one that its tokens were sealed with.
CREATE TABLE key_check (
	sealed BLOB NOT NULL
) STRICT;
