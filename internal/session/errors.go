package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Causes of errors. Each error is a *sandbox.Error with one of them, or with
// none, in its chain.
var (
	ErrNotFound        = errors.New("no such session")
	ErrProcessNotFound = errors.New("no such managed process")
	ErrProcessConflict = errors.New("a managed process is in the wrong state")
	ErrCapacity        = errors.New("no room for another")
	ErrBackend         = errors.New("the wall can't be had")
	ErrAdmission       = errors.New("not admitted")
	ErrReadiness       = errors.New("not ready")
)

// ConflictError is the cause of an error for a session that is there and is
// otherwise than was asked.
type ConflictError struct {
	Session string
	Fields  []box.Difference // all of them, in the order of their check
}

// Error names every field with what it is.
func (e *ConflictError) Error() string {
	parts := make([]string, 0, len(e.Fields))
	for _, f := range e.Fields {
		parts = append(parts, fmt.Sprintf("%s=%v", f.Field, f.Is))
	}
	return fmt.Sprintf("Box session %s already exists with %s", e.Session, strings.Join(parts, ", "))
}

// Class returns the class that stands for err on the wires of Box; "" for nil.
func Class(err error) string {
	if err == nil {
		return ""
	}
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return box.ClassSessionConflict
	}
	for cause, class := range map[error]string{
		ErrNotFound: box.ClassSessionNotFound, ErrProcessNotFound: box.ClassProcessNotFound,
		ErrProcessConflict: box.ClassProcessConflict, ErrCapacity: box.ClassCapacity,
		ErrBackend: box.ClassBackendUnavailable, ErrAdmission: box.ClassAdmission, ErrReadiness: box.ClassReadiness,
	} {
		if errors.Is(err, cause) {
			return class
		}
	}
	if sandbox.KindOf(err) == sandbox.Invalid {
		return box.ClassValidation
	}
	return box.ClassError
}

// fail returns an Error of a kind that has cause in its chain.
func fail(cause error, k sandbox.Kind, format string, args ...any) *sandbox.Error {
	e := sandbox.Errorf(k, format, args...)
	e.Err = cause
	return e
}
