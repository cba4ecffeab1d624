-- What sandboxes are made from. The records are JSON; what is beside them is
-- what must be unique, or goes with something else.
CREATE TABLE templates (
	id     TEXT PRIMARY KEY,
	owner  TEXT NOT NULL,
	name   TEXT NOT NULL,
	record TEXT NOT NULL,
	UNIQUE (owner, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE builds (
	id       TEXT PRIMARY KEY,
	template TEXT NOT NULL REFERENCES templates (id),
	record   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX builds_template ON builds (template);

CREATE TABLE template_tags (
	template   TEXT NOT NULL REFERENCES templates (id),
	name       TEXT NOT NULL,
	build      TEXT NOT NULL,
	created_at INTEGER NOT NULL, -- nanoseconds of Unix time
	PRIMARY KEY (template, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE template_cache (
	key    TEXT PRIMARY KEY,
	record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
