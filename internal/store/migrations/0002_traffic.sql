-- The token of a sandbox's ports, sealed as the other is; null: it has none.
ALTER TABLE sandboxes ADD COLUMN traffic BLOB;
