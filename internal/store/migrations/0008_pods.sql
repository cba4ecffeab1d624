-- Agents that agents have spawned, and what they may do. The record is JSON.
CREATE TABLE pods (
	owner  TEXT NOT NULL,
	name   TEXT NOT NULL,
	record TEXT NOT NULL, -- internal/pod/record.Pod as JSON
	PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
