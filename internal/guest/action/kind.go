package action

import (
	"errors"
	"fmt"
)

// The kinds of errors, in the API's words. One without a kind is the request's fault.
const (
	kindInvalid     = "invalid"
	kindNotFound    = "not_found"
	kindConflict    = "conflict"
	kindExhausted   = "exhausted"
	kindUnsupported = "unsupported"
	kindUnavailable = "unavailable"
)

// kinded is an error of a kind.
type kinded struct {
	kind string
	err  error
}

func (k *kinded) Error() string { return k.err.Error() }
func (k *kinded) Unwrap() error { return k.err }

// fail is fmt.Errorf for an error of a kind.
func fail(kind, format string, args ...any) error {
	return &kinded{kind, fmt.Errorf(format, args...)}
}

// kindOfError is what a reply says of an error.
func kindOfError(err error) string {
	if k, ok := errors.AsType[*kinded](err); ok {
		return k.kind
	}
	if errors.Is(err, ErrClosed) {
		return kindUnavailable
	}
	return kindInvalid
}
