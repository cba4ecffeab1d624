package cli_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/internal/cli"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestLineCounter(t *testing.T) {
	tests := []struct {
		name, patch    string
		added, removed int
	}{
		{"empty", "", 0, 0},
		{"change", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n", 1, 1},
		{"short-header", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+c\n\\ No newline at end of file\n", 1, 1},
		{"lines-like-headers", "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n---- x\n-- y\n+++++ z\n+@@ -1 +1 @@\n", 2, 2},
		{"two-hunks", "@@ -1 +1,2 @@ func\n a\n+b\n@@ -9,2 +10 @@\n-x\n y\n", 1, 1},
		{"new", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", 2, 0},
		{"binary", "Binary files a/f and b/f differ\n", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.patch), iotest.OneByteReader(strings.NewReader(tt.patch))} {
				var c cli.LineCounter
				if _, err := io.Copy(&c, r); err != nil {
					t.Fatal(err)
				}
				if added, removed := c.Counts(); added != tt.added || removed != tt.removed {
					t.Errorf("got +%d -%d, want +%d -%d", added, removed, tt.added, tt.removed)
				}
			}
		})
	}
}

func TestExitOf(t *testing.T) {
	tests := []struct {
		name string
		exit *guestv1.Exit
		want int
	}{
		{"nothing", nil, 125},
		{"exited", &guestv1.Exit{Reason: guestv1.Reason_REASON_EXITED, Code: 255}, 255},
		{"signalled", &guestv1.Exit{Reason: guestv1.Reason_REASON_SIGNALLED, Code: 143, Signal: 15}, 143},
		{"timed-out", &guestv1.Exit{Reason: guestv1.Reason_REASON_TIMED_OUT, Code: 137}, 124},
		{"out-of-memory", &guestv1.Exit{Reason: guestv1.Reason_REASON_OUT_OF_MEMORY}, 137},
		{"killed", &guestv1.Exit{Reason: guestv1.Reason_REASON_KILLED}, 137},
		{"no-command", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED, Code: 127}, 127},
		{"no-exec", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED, Code: 126}, 126},
		{"not-started", &guestv1.Exit{Reason: guestv1.Reason_REASON_NOT_STARTED}, 125},
		{"newer-guest", &guestv1.Exit{Reason: 99, Code: 3}, 125},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cli.ExitOf(tt.exit); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	if got := cli.ExitCode(nil); got != 0 {
		t.Errorf("no error is %d", got)
	}
	for _, err := range []error{
		io.ErrUnexpectedEOF, sandbox.Errorf(sandbox.NotFound, "x"), sandbox.Errorf("of a newer daemon", "x"),
	} {
		if got := cli.ExitCode(err); got != 125 {
			t.Errorf("%v is %d", err, got)
		}
	}
}
