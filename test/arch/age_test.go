package arch

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAgeOfPin: a pin of gVisor is too old after eight weeks, and one that does
// not tell its age is not taken for a young one.
func TestAgeOfPin(t *testing.T) {
	const pin = "v0.0.0-20260905035102-160fafc42237"
	for _, tt := range []struct {
		name, version, now string
		code               int
	}{
		{"a-day", pin, "2026-09-06", 0},
		{"before-eight-weeks", pin, "2026-10-30 23:59", 0},
		{"eight-weeks", pin, "2026-10-31", 1},
		{"after-a-tag", "v1.2.3-0.20260905035102-160fafc42237", "2026-12-01", 1},
		{"no-date", "v1.2.3", "2026-09-06", 2},
		{"no-version", "", "2026-09-06", 2},
	} {
		cmd := exec.Command(filepath.Join(root, "scripts/gvisor-age.sh"), tt.version, tt.now)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s", tt.name, got, tt.code, out)
		}
	}
}
