package login

import (
	"errors"
	"strings"
	"testing"
)

// TestCredentialsErrorsAreOurs holds that what a helper prints is never shown.
func TestCredentialsErrorsAreOurs(t *testing.T) {
	for _, text := range []string{
		"error getting credentials - err: exit status 1, out: `hunter2`",
		`error getting credentials - err: exec: "docker-credential-x": executable file not found in $PATH, out: ` + "``",
		"hunter2: invalid character",
	} {
		if got := failed(errors.New(text)); strings.Contains(got, "hunter2") || got == "" {
			t.Errorf("of %q is told %q", text, got)
		}
	}
}
