package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"golang.org/x/sys/unix"
)

// The codes of an Error.
const (
	CodeAlreadyRunning = "already_running" // a turn is under way
	CodeNotRunning     = "not_running"
	CodeNotPaused      = "not_paused"
	CodeProvider       = "provider_error"
	CodeTool           = "tool_error"
	CodeInvalidRequest = "invalid_request"
	CodeInternal       = "internal"
)

// Error is what a pod says by the event error, and what a server of pods may fail with.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Error is the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// VersionError says that a pod speaks a version that this package does not.
type VersionError struct{ Version int }

// Error says both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the pod speaks version %d of the protocol, and this program version %d", e.Version, Version)
}

// LineError says that a line of a connection was no method or event, and was passed over.
// What follows can be read.
type LineError struct {
	TooLong bool // more than Options.MaxLine
	Err     error
}

// Error is what is wrong with the line.
func (e *LineError) Error() string { return "a line of the connection: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// ErrClosed says that a pod closed the connection before it took what it was sent.
var ErrClosed = errors.New("the pod closed the connection")

// Liveness is whether a pod can be reached: by its socket alone, whatever became of the
// process that was started for it.
type Liveness int

// The livenesses.
const (
	Unknown Liveness = iota // it could not be found out, which is not Gone
	Alive                   // somebody accepts connections
	Gone                    // nobody does
)

// String is the word for it.
func (l Liveness) String() string {
	switch l {
	case Alive:
		return "alive"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// LivenessOf is what the outcome of dialling says. Only that there is no socket, or that
// nobody listens on it, is Gone: who is slow, busy or not to be looked at may be there.
func LivenessOf(err error) Liveness {
	switch {
	case err == nil:
		return Alive
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Unknown
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return Gone
	}
	return Unknown
}

// ended is err, with ErrClosed for an end that was not asked for.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return ErrClosed
	}
	return err
}
