package store

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func notFound(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "sandbox %s: not found", id).WithHint("carboy ls")
}

func nameTaken(sb *sandbox.Sandbox) error {
	return sandbox.Errorf(sandbox.Conflict, "sandbox %s: the name is taken", sb.Spec.Name).
		WithHint("choose another name")
}

// restoreHint is said of every file that can't be read. Starting afresh is
// not free: instances that no record leads to are removed.
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
	c := code(err)
	switch {
	case isFull(err, path):
		return sandbox.DiskError(fmt.Errorf("%s: %w: %w", doing, unix.ENOSPC, err), "the disk of "+path)
	case c != 0 && disk.ReadOnly(filepath.Dir(path)):
		return sandbox.DiskError(fmt.Errorf("%s: %w: %w", doing, unix.EROFS, err), "the disk of "+path)
	}
	if e := explained(c, path); e != nil {
		e.Err = fmt.Errorf("%s: %w", doing, err)
		return e
	}
	return fmt.Errorf("%s in %s: %w", doing, path, err)
}

// explained is what a code means, where the disk is not to blame; nil: it says
// nothing to a user.
func explained(code int, path string) *sandbox.Error {
	switch code {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return damaged(path, nil)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return sandbox.Errorf(sandbox.Unavailable, "the state file %s is in use", path).WithHint("try again")
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return sandbox.Errorf(sandbox.Internal, "the state file %s can't be written", path).
			WithHint("look at its permissions and at those of its directory")
	}
	return nil
}

// isFull reports whether err says that the disk is full. SQLite has a code for
// that only where it writes: files that it could not make, or make longer, have
// other ones, that say nothing of why.
func isFull(err error, path string) bool {
	return code(err) == sqlite3.SQLITE_FULL || mayBeFull(err) && disk.Full(filepath.Dir(path))
}

// mayBeFull is isFull where the disk may have got room since.
func mayBeFull(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}
