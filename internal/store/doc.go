// Package store keeps the records of sandboxes and their events: SQLite in a
// file that only its owner can read, and Memory for tests. Both implement
// sandbox.Store and sandbox.EventLog, and pass storetest.
//
// A record that was put, or deleted, is on the disk when the call returns: it
// outlives a kill of the process and, as far as the disk keeps its word, a
// loss of power. The Manager acts on what it wrote, so the last write is
// the one that must not be lost. Events are cheaper: they outlive a kill, and
// the newest may be lost with the power.
//
// Access tokens are sealed with a key that lies in a file of its own beside
// the database, so that a copy of the database gives away none.
//
// A database that is damaged, was written by a newer version, belongs to
// another program or is in use by another process is refused and left as it
// is.
package store
