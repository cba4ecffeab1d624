package cli_test

import (
	"strings"
	"testing"
)

// Nobody types for a command that is left running.
func TestDetachOnTerminal(t *testing.T) {
	d := startFake(t)
	code, out := onTerminal(t, d, nil, "exec", "-d", "-i", "web", "--", "cat").wait()
	if code != 125 || !strings.Contains(out, "--detach can't go with -i alone on a terminal") || !strings.Contains(out, "with -t it has a terminal") {
		t.Errorf("code %d, %q", code, out)
	}
}
