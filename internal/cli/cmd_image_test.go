package cli_test

import (
	"strings"
	"testing"
)

// TestPullOnTerminal holds that bars are drawn and taken away, and that Ctrl-C
// ends a pull.
func TestPullOnTerminal(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "image", "pull", "slow:1")
	s.expect("bbbbbbbbbbbb  download    [")
	s.expect("1 layer done")
	s.send("\x03")
	code, rest := s.wait()
	if code == 0 || !strings.Contains(rest, "\r\x1b[J") {
		t.Errorf("exit code %d, and at the end %q, want the bars cleared", code, rest)
	}
	s = onTerminal(t, d, nil, "image", "pull", "--quiet", "debian:12")
	if code, rest := s.wait(); code != 0 || strings.Contains(rest, "\x1b") || !strings.Contains(rest, "debian:12@sha256:") {
		t.Errorf("a quiet pull: exit code %d, %q", code, rest)
	}
}

// TestRunInterruptedWhilePulling holds that Ctrl-C during the pull of a run
// makes no sandbox.
func TestRunInterruptedWhilePulling(t *testing.T) {
	d := startFake(t)
	s := onTerminal(t, d, nil, "run", "--image", "slow:1", "--", "true")
	s.expect("bbbbbbbbbbbb")
	s.send("\x03")
	if code, rest := s.wait(); code == 0 || d.count() != 0 {
		t.Errorf("exit code %d, %d sandboxes, %q", code, d.count(), rest)
	}
}
