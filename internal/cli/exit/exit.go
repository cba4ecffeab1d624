// Package exit has carboy's exit codes: the command's own where one was run, and a
// few of ours. It refuses to tell kinds of errors apart: they have words for that.
package exit

import (
	"errors"
	"strconv"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
)

// Carboy's own exit codes; every other one is the command's.
const (
	OK          = 0
	TimedOut    = 124
	Failed      = 125
	NoExec      = 126
	NoCommand   = 127
	Interrupted = 130 // by a signal to carboy itself, such as Ctrl-C
	Killed      = 137
)

// Error ends carboy with a code, and says nothing: all was said.
type Error struct{ Code int }

// Error is there for logs: nobody is shown it.
func (e *Error) Error() string { return "exit status " + strconv.Itoa(e.Code) }

// Code is the process's exit code for what a command returned.
func Code(err error) int {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Failed
}

// Of is the exit code for the end of a command in a sandbox.
func Of(e *guestv1.Exit) int {
	switch e.GetReason() {
	case guestv1.Reason_REASON_TIMED_OUT:
		return TimedOut
	case guestv1.Reason_REASON_OUT_OF_MEMORY:
		return Killed
	case guestv1.Reason_REASON_KILLED: // 130 for a Ctrl-C that was passed on
		if c := int(e.GetCode()) & 0xff; c > 128 {
			return c
		}
		return Killed
	case guestv1.Reason_REASON_NOT_STARTED:
		if c := int(e.GetCode()); c == NoExec || c == NoCommand {
			return c
		}
		return Failed
	case guestv1.Reason_REASON_EXITED, guestv1.Reason_REASON_SIGNALLED:
		return int(e.GetCode()) & 0xff
	default:
		return Failed
	}
}
