package sudo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	const searched = "/usr/bin:/usr/local/bin:/bin"
	tests := []struct {
		name, dirs, has string // has is a file that is there before
		served          bool
		want            string // where it is then; "": nowhere
	}{
		{"as-usual", "/usr/local/bin /usr/bin", "", true, "/usr/local/bin/sudo"},
		{"advice", "/usr/local/bin /usr/bin", "", false, "/usr/local/bin/sudo"},
		{"no-local", "/usr/bin", "", true, "/usr/bin/sudo"},
		{"before-the-image's", "/usr/local/bin /usr/bin", "/usr/bin/sudo", true, "/usr/local/bin/sudo"},
		{"the-image's-own", "/usr/local/bin", "/usr/local/bin/sudo", true, ""},
		{"nowhere", "/opt", "", true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for _, d := range strings.Fields(tt.dirs) {
				must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
			}
			if tt.has != "" {
				must(t, os.WriteFile(filepath.Join(root, tt.has), []byte("theirs"), 0o755))
			}
			for range 2 {
				must(t, Install(root, searched, "ask for root", tt.served))
			}
			if tt.has != "" && read(t, root, tt.has) != "theirs" {
				t.Error("the image's own was replaced")
			}
			if tt.want == "" {
				return
			}
			if got := read(t, root, tt.want); strings.HasPrefix(got, "#!") == tt.served {
				t.Errorf("%.20q is there", got)
			}
			// What the agent put there before is of the same kind afterwards.
			must(t, Install(root, searched, "ask for root", !tt.served))
			if got := read(t, root, tt.want); strings.HasPrefix(got, "#!") != tt.served {
				t.Errorf("%.20q is there after a change", got)
			}
		})
	}
}

// The advice is a line on standard error, and a failure.
func TestAdvice(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	must(t, Install(root, "/bin", "ask for root", false))
	cmd := exec.Command(filepath.Join(root, "bin/sudo"), "id")
	var errs strings.Builder
	cmd.Stderr = &errs
	if out, err := cmd.Output(); err == nil || len(out) > 0 || errs.String() != "sudo: ask for root\n" {
		t.Errorf("%q, %q, %v", out, errs.String(), err)
	}
}

// No link of an image leads out of it.
func TestInstallThroughLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "usr/local"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(root, "usr/local/bin")))
	must(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "theirs"), []byte(mark), 0o755))
	must(t, os.Symlink(filepath.Join(outside, "theirs"), filepath.Join(root, "bin/sudo")))
	must(t, Install(root, "/usr/local/bin:/bin", "ask for root", true))
	if got := read(t, outside, "theirs"); got != mark {
		t.Errorf("outside is %.20q", got)
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("outside has %v", left)
	}
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
