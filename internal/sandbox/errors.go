package sandbox

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Kind classifies an error for callers that must act on it. The HTTP status,
// the exit code and the MCP error of each kind stand in one table of the
// package that speaks that protocol. The wire carries the text of a kind, so
// one is never renamed.
type Kind string

// The kinds.
const (
	Invalid     Kind = "invalid"     // the request can never work as written
	NotFound    Kind = "not_found"   // no such sandbox, command or path
	Conflict    Kind = "conflict"    // the sandbox is in the wrong state, or the name is taken
	Denied      Kind = "denied"      // the caller may not
	Unsupported Kind = "unsupported" // understood, and this machine or this version can't do it
	Exhausted   Kind = "exhausted"   // a limit of the host or of the caller was reached
	Unavailable Kind = "unavailable" // worth another try: the guest or the daemon did not answer
	Internal    Kind = "internal"    // anything else; the details are for the log
)

// Error is an error whose text is safe and useful to show to a user.
type Error struct {
	Kind Kind
	Msg  string // lower case, no full stop: "sandbox web: not found"
	Hint string // what to do next, or empty: "carboy ls"
	Err  error  // the cause, for the log; never shown
	// Retry is after how long another try is worth it; 0: not known.
	Retry time.Duration
	// Again says that nothing was done, or that it was undone, as the daemon leaves:
	// the next daemon may be asked the same.
	Again bool
}

// Error returns the message alone: the hint is printed apart, the cause never.
func (e *Error) Error() string { return e.Msg }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first Error in err's chain, Internal where
// there is none, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// Errorf returns an Error of kind k. A %w argument becomes its cause, and its
// text a part of the message: wrap only what a user may read.
func Errorf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Msg: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of e that carries a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// DiskError makes an error of a disk that is full, or that can't be written at
// all, one that a user may read, and which says which: what, such as "the disk of
// /var/lib/x". Any other error, and nil, it returns as it is.
func DiskError(err error, what string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	switch {
	case IsDiskFull(err):
		return &Error{Kind: Exhausted, Msg: what + " is full", Hint: "free some space there, then try again", Err: err}
	case errors.Is(err, syscall.EROFS):
		return &Error{Kind: Unavailable, Msg: what + " is read-only", Hint: "the kernel's log may say why; mount it anew so that it can be written", Err: err}
	}
	return err
}

// IsDiskFull reports whether err is of a disk that is full.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// HostImageHint is the hint for a key that may not use the machine's own programs: keys are made
// by a command, or are lines of a file.
const HostImageHint = `carboy key add --host-image makes a key that may; of one in the key file, its line says "host_image": true`

// LogHint is the hint of an error whose details are for the log: a command line that
// may read the log shows them in its place.
const LogHint = "the daemon's log says why"

// failure makes err one that a user may read: what is an Error stays one, an
// interruption says so, and the text of anything else is for the log.
func failure(err error, ref, doing string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	what := "new sandbox"
	if ref != "" {
		what = "sandbox " + refText(ref)
	}
	e := Errorf(Internal, "%s: could not %s", what, doing).WithHint(LogHint)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e = Errorf(Unavailable, "%s: interrupted while trying to %s", what, doing).WithHint("try again")
	}
	if d, ok := errors.AsType[*Error](DiskError(err, fmt.Sprintf("%s: could not %s: the disk of carboy's state", what, doing))); ok {
		return d
	}
	e.Err = err
	return e
}

// userText is what of err may be shown.
func userText(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Msg
	}
	return "internal error"
}
