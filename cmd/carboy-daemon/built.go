package main

import (
	"github.com/carboy-sandbox/carboy/internal/guest/guestbin"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// built says what is wrong with how this program was built, which go build does in ways
// that make build does not: it has no guest agent to put into sandboxes, or a C library
// that roles can't start with.
func built() error {
	switch {
	case !guestbin.Built():
		return sandbox.Errorf(sandbox.Unsupported,
			"this carboy was built without its guest agent, as go install does: build it by make build, in a clone of its source").
			WithHint("make build")
	case cgo:
		return sandbox.Errorf(sandbox.Unsupported,
			"this carboy was built with cgo, with which no sandbox starts: build it by make build, in a clone of its source").
			WithHint("make build")
	}
	return nil
}
