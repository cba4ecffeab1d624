// Package secret keeps named secrets for their owners, and for single
// sandboxes, encrypted at rest, and hands out their values.
//
// What is kept is a source: a value, a file that is read at each use, or a
// command that mints a value. Files are opened, and commands run, with the
// rights of the owner, who must be a user of this machine.
//
// A value is never in an error, a log or anything printed. The store refuses
// a key file or directory that others can read, names that are no identifiers,
// values that no header could hold or that are too short to be looked for in
// what comes back, and records that were moved from one owner to another.
package secret
