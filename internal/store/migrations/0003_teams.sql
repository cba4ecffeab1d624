-- Keys that were made at run time. Of the key itself there is only its hash.
CREATE TABLE keys (
	id      TEXT PRIMARY KEY,
	owner   TEXT NOT NULL,
	hash    TEXT NOT NULL UNIQUE,
	record  TEXT NOT NULL, -- team.Key as JSON
	used_at INTEGER        -- nanoseconds since 1970, or null
) STRICT;

-- What clients of E2B's API know of their secrets. The values are not here.
CREATE TABLE named_secrets (
	id     TEXT PRIMARY KEY,
	owner  TEXT NOT NULL,
	name   TEXT NOT NULL,
	record TEXT NOT NULL, -- team.Secret as JSON
	UNIQUE (owner, name)
) STRICT;

-- What the daemon itself remembers.
CREATE TABLE settings (
	name  TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT;
