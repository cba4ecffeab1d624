package guest

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
)

func TestNamePython(t *testing.T) {
	tests := []struct {
		name     string
		files    map[string]string // "": a program; else a link's target
		path     string
		at, want string // a name and what it leads to; "": it is not there
	}{
		{"python3-alone", map[string]string{"usr/bin/python3": ""}, "", "usr/bin/python", "python3"},
		{"by-a-link", map[string]string{"usr/bin/python3.99": "", "usr/bin/python3": "python3.99"}, "", "usr/bin/python", "python3"},
		{"by-an-absolute-link", map[string]string{"opt/py/python3": "", "usr/bin/python3": "/opt/py/python3"}, "", "usr/bin/python", "python3"},
		{"through-a-merged-bin", map[string]string{"usr/bin/python3": "", "bin": "usr/bin"}, "/bin", "usr/bin/python", "python3"},
		{"the-first", map[string]string{"usr/bin/python3": "", "usr/local/bin/python3": ""}, "", "usr/local/bin/python", "python3"},
		{"the-environments", map[string]string{"opt/bin/python3": ""}, "relative:/opt/bin:/usr/bin", "opt/bin/python", "python3"},
		{"not-searched", map[string]string{"opt/bin/python3": ""}, "", "opt/bin/python", ""},
		{"has-both", map[string]string{"usr/bin/python3": "", "usr/local/bin/python": "/usr/bin/python3"}, "", "usr/bin/python", ""},
		{"python-of-another-kind", map[string]string{"usr/bin/python3": "", "usr/bin/python": "python2", "usr/bin/python2": ""}, "", "usr/bin/python", "python2"},
		{"a-link-to-nothing-is-kept", map[string]string{"usr/bin/python3": "", "usr/bin/python": "gone"}, "", "usr/bin/python", "gone"},
		{"no-python", nil, "", "usr/bin/python", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, target := range tt.files {
				p := filepath.Join(root, name)
				err := os.MkdirAll(filepath.Dir(p), 0o755)
				if err == nil && target != "" {
					err = os.Symlink(target, p)
				} else if err == nil {
					err = os.WriteFile(p, nil, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second start changes nothing
				if err := namePython(root, cmp.Or(tt.path, commandPath), ""); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.Readlink(filepath.Join(root, tt.at)); got != tt.want {
				t.Errorf("%s leads to %q (%v), want %q", tt.at, got, err, tt.want)
			}
		})
	}
}

// A directory of the image that a link leads out of it by is one in it.
func TestNamePythonStaysInside(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, d := range []string{root, outside} {
		if err := os.MkdirAll(filepath.Join(d, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "bin/python3"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../outside/bin", filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	if err := namePython(root, "/out", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "bin/python")); err == nil {
		t.Error("a link was made outside the image")
	}
}
