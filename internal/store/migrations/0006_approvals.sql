-- What became of what sandboxes asked. The record is JSON.
CREATE TABLE approvals (
	id     INTEGER PRIMARY KEY,
	owner  TEXT NOT NULL,
	record TEXT NOT NULL -- api.Approval as JSON
) STRICT;

CREATE INDEX approvals_owner ON approvals (owner, id);
