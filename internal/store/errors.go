package store

import (
	"cmp"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func notFound(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", id).WithHint("carboy ls")
}

func nameTaken(sb *sandbox.Sandbox) error {
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", sb.Spec.Name).
		WithHint("choose another name")
}

func byID(a, b *sandbox.Sandbox) int { return cmp.Compare(a.ID, b.ID) }

// restoreHint is said of every file that can't be read. Starting afresh is
// not free: boxes that no record leads to are removed.
const restoreHint = "restore %[1]s from a backup; or move it away and start anew: " +
	"then the sandboxes that it knew are removed, with their workspaces"

func damaged(path string, cause error) *sandbox.Error {
	e := sandbox.Errorf(sandbox.Internal, "the state file %s is damaged", path).WithHint(restoreHint, path)
	e.Err = cause
	return e
}

func foreign(path string) *sandbox.Error {
	return sandbox.Errorf(sandbox.Conflict, "%s is another program's database", path).
		WithHint("move it away, or set XDG_STATE_HOME to another directory")
}

// code returns the result code of SQLite in err's chain, without its
// extension, and 0 where there is none.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// explain turns what SQLite says about the database at path into what a user
// can act on. Anything else stays as it is, with what was being done.
func explain(err error, path, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sandbox.Error](err); ok {
		return err
	}
	var e *sandbox.Error
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		e = sandbox.Errorf(sandbox.Exhausted, "the disk of %s is full", path).WithHint("make room and try again")
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		e = damaged(path, nil)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		e = sandbox.Errorf(sandbox.Unavailable, "the state file %s is in use", path).WithHint("try again")
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		e = sandbox.Errorf(sandbox.Internal, "the state file %s can't be written", path).
			WithHint("look at its permissions and at those of its directory")
	default:
		return fmt.Errorf("%s in %s: %w", doing, path, err)
	}
	e.Err = fmt.Errorf("%s: %w", doing, err)
	return e
}
