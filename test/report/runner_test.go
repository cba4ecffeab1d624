package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunner plants a test of each kind, and runs it as scripts/test.sh runs all.
func TestRunner(t *testing.T) {
	gotestsum := os.Getenv("CARBOY_GOTESTSUM")
	if gotestsum == "" {
		gotestsum = filepath.Join(t.TempDir(), "gotestsum")
		if out, err := exec.Command("go", "build", "-o", gotestsum, "gotest.tools/gotestsum").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	tests := []struct {
		planted string
		green   bool
		want    string
	}{
		{"passes", true, "1 passed, 0 failed, 0 skipped"},
		{"fails", false, "RED:\n  test/report/testdata/planted/fails TestPlanted\n"},
		{"once", true, "flaky: failed, and passed alone:\n  test/report/testdata/planted/once TestPlanted/sub\n"},
		{"finds", false, "finding: a way out (no second try counts)"},
		{"races", false, "WARNING: DATA RACE (no second try counts)"},
		{"panics", false, "panic: planted"},
		{"skips", false, "TestPlanted: skipped for no lawful reason"},
		{"missing", false, "RED:"},
	}
	for _, tt := range tests {
		t.Run(tt.planted, func(t *testing.T) {
			dir := t.TempDir()
			said := filepath.Join(dir, "said.json")
			cmd := exec.Command("../../scripts/stage.sh", said, "./testdata/planted/"+tt.planted, "-race", "-count=1")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=", "CARBOY_GOTESTSUM="+gotestsum, "CARBOY_PLANTED="+filepath.Join(dir, "planted"))
			told, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, told)
			}
			r := newRun()
			if err := readFile(r, said); err != nil {
				t.Fatal(err)
			}
			v := judge(r, machine{}, nil)
			var out strings.Builder
			v.print(&out)
			if v.green() != tt.green || !strings.Contains(out.String(), tt.want) {
				t.Errorf("green %v, with\n%swant %v, with\n%s\nthe runner:\n%s", v.green(), out.String(), tt.green, tt.want, told)
			}
		})
	}
}
