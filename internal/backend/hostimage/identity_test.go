package hostimage_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/backend/hostimage"
)

// An identity changes with what an upgrade or an installation changes, and with
// nothing of a user's.
func TestIdentity(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	identity := func() string {
		t.Helper()
		id, err := hostimage.Identity(root)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	write("usr/bin/tool", "1")
	write("var/lib/dpkg/status", "tool 1")
	write("etc/os-release", "VERSION=1")
	write("home/ann/x", "1")
	for _, step := range []struct {
		name    string
		do      func()
		changes bool
	}{
		{"nothing", func() {}, false},
		{"a-user's-file", func() { write("home/ann/y", "1") }, false},
		{"a-package", func() { write("var/lib/dpkg/status", "tool 1, other 1") }, true},
		{"a-release", func() { write("etc/os-release", "VERSION=12") }, true},
		{"a-program", func() {
			write("usr/bin/another", "1")
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(filepath.Join(root, "usr/bin"), later, later); err != nil { // clocks are coarse
				t.Fatal(err)
			}
		}, true},
	} {
		before := identity()
		step.do()
		if got := identity() != before; got != step.changes {
			t.Errorf("%s: changed is %t", step.name, got)
		}
	}
}
