package session

import (
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/profile"
)

// Causes of errors. Each error is a *sandbox.Error with one of them, or with
// none, in its chain.
var (
	ErrNotFound        = profile.ErrNotFound
	ErrProcessNotFound = profile.ErrProcessNotFound
	ErrProcessConflict = profile.ErrProcessConflict
	ErrCapacity        = profile.ErrCapacity
	ErrBackend         = profile.ErrBackend
	ErrRuntime         = profile.ErrRuntime
	ErrAdmission       = profile.ErrAdmission
	ErrReadiness       = profile.ErrReadiness
)

// ConflictError is the cause of an error for a session that is there and is
// otherwise than was asked.
type ConflictError = profile.ConflictError

// Class returns the class that stands for err on the wires of Box; "" for nil.
func Class(err error) string { return profile.Class(err) }

// fail returns an Error of a kind that has cause in its chain.
func fail(cause error, k sandbox.Kind, format string, args ...any) *sandbox.Error {
	e := sandbox.Errorf(k, format, args...)
	e.Err = cause
	return e
}
