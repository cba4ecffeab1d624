package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A binary that go install made has no programs to carry: each command that needs one
// says so in its first line, and what to do instead; the others work.
func TestBinaryWithoutPrograms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(root, "internal/program/bin/index"): ""}, // is not there
	})
	if err == nil {
		err = os.WriteFile(dir+"/overlay.json", overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-overlay", dir+"/overlay.json", "-o", dir+"/carboy", "./cmd/carboy")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h := newHome(t)
	run := func(args ...string) (string, error) {
		cmd := h.command(t.Context(), args...)
		cmd.Path = dir + "/carboy"
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"run", "--", "true"}, {"create"}, {"ls"}, {"doctor"}, {"serve"}, {"session", "ls"}} {
		out, err := run(args...)
		if err == nil || !strings.HasPrefix(out, "carboy: this carboy was built without its daemon") || !strings.Contains(out, "make build") {
			t.Errorf("%q: %v, %q", args, err, out)
		}
	}
	for _, args := range [][]string{{"version"}, {"help"}, {"uninstall", "--dry-run"}} {
		if out, err := run(args...); err != nil {
			t.Errorf("%q: %v, %q", args, err, out)
		}
	}
}
