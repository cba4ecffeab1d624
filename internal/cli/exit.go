package cli

import (
	"errors"
	"strconv"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// carboy's own exit codes; every other one is the command's.
const (
	exitOK        = 0
	exitTimedOut  = 124
	exitFailed    = 125
	exitNoExec    = 126
	exitNoCommand = 127
	exitKilled    = 137
)

// exitOfKind is the exit code of each kind of error. A kind that is not here
// is exitFailed as well: it comes from a newer daemon.
var exitOfKind = [...]struct {
	kind sandbox.Kind
	code int
}{
	{sandbox.Invalid, exitFailed},
	{sandbox.NotFound, exitFailed},
	{sandbox.Conflict, exitFailed},
	{sandbox.Denied, exitFailed},
	{sandbox.Unsupported, exitFailed},
	{sandbox.Exhausted, exitFailed},
	{sandbox.Unavailable, exitFailed},
	{sandbox.Internal, exitFailed},
}

// exitError ends carboy with a code, and says nothing: all was said.
type exitError struct{ code int }

func (e *exitError) Error() string { return "exit status " + strconv.Itoa(e.code) }

// exitCode is the process's exit code for what a command returned.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	kind := sandbox.KindOf(err)
	for _, row := range exitOfKind {
		if row.kind == kind {
			return row.code
		}
	}
	return exitFailed
}

// exitOf is the exit code for the end of a command in a sandbox.
func exitOf(e *guestv1.Exit) int {
	switch e.GetReason() {
	case guestv1.Reason_REASON_TIMED_OUT:
		return exitTimedOut
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return exitKilled
	case guestv1.Reason_REASON_KILLED: // 130 for a Ctrl-C that was passed on
		if c := int(e.GetCode()) & 0xff; c > 128 {
			return c
		}
		return exitKilled
	case guestv1.Reason_REASON_NOT_STARTED:
		if c := int(e.GetCode()); c == exitNoExec || c == exitNoCommand {
			return c
		}
		return exitFailed
	case guestv1.Reason_REASON_EXITED, guestv1.Reason_REASON_SIGNALLED:
		return int(e.GetCode()) & 0xff
	default:
		return exitFailed
	}
}
