-- Numbers of approvals say nothing of their age.
ALTER TABLE approvals ADD COLUMN asked INTEGER NOT NULL DEFAULT 0; -- in ns; 0: by an earlier version, whose numbers do

DROP INDEX approvals_owner;
CREATE INDEX approvals_age ON approvals (owner, asked, id);
