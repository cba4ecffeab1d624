package reach_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/daemon/reach"
	"github.com/carboy-sandbox/carboy/internal/home"
)

func TestWhy(t *testing.T) {
	const log = `nonsense
time=2026-01-02T10:00:00.000Z level=ERROR msg="a request failed" method=POST path=/v1/sandboxes error="sandbox web: could not start" cause="too early"
time=2026-01-02T12:00:00.000Z level=ERROR msg="a request failed" method=POST path=/v1/sandboxes error="sandbox other: could not start" cause="another's"
time=2026-01-02T12:00:01.000Z level=ERROR msg="a request failed" method=POST path=/v1/sandboxes error="sandbox web: could not start" cause=outer cause="launch: \"x\" denied"
time=2026-01-02T12:00:02.000Z level=INFO msg="sandbox created" error="sandbox web: could not start" cause="no request"
`
	dirs := home.Dirs{State: t.TempDir()}
	since := time.Date(2026, 1, 2, 11, 0, 0, 0, time.UTC)
	if path, cause := reach.Why(dirs, "sandbox web: could not start", since); path != "" || cause != "" {
		t.Errorf("without a log: %q, %q", path, cause)
	}
	want := filepath.Join(dirs.State, "daemon.log")
	if err := os.WriteFile(want, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, message, cause string }{
		{"found", "sandbox web: could not start", `launch: "x" denied`},
		{"of-another", "sandbox other: could not start", "another's"},
		{"not-there", "sandbox none: could not start", ""},
		{"a-part-of-one", "could not start", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if path, cause := reach.Why(dirs, tt.message, since); path != want || cause != tt.cause {
				t.Errorf("got %q, %q; want %q, %q", path, cause, want, tt.cause)
			}
		})
	}
	if _, cause := reach.Why(dirs, "sandbox web: could not start", since.Add(2*time.Hour)); cause != "" {
		t.Errorf("of an earlier command: %q", cause)
	}
}
