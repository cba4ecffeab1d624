-- Sandboxes that are asked for by a key of their owner's. The record is JSON.
CREATE TABLE sessions (
	id     TEXT PRIMARY KEY,
	owner  TEXT NOT NULL,
	key    TEXT NOT NULL,
	record TEXT NOT NULL, -- record.Session as JSON
	UNIQUE (owner, key)
) STRICT, WITHOUT ROWID;
