package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/cli"
)

// TestWorkspaceOfHome holds that one line is said of a home as the workspace,
// and of what has homes in it.
func TestWorkspaceOfHome(t *testing.T) {
	tests := []struct {
		name, dir string
		says      string // "" nothing
	}{
		{"home", "homes/me", "is a home: "},
		{"home-by-link", "link", "is a home: "},
		{"home-writable", "homes/me:rw", "what is written there is obeyed at once"},
		{"home-read-only", "homes/me:ro", ""},
		{"above", "homes", "has homes in it: "},
		{"below", "homes/me/project", ""},
		{"beside", "homes/metoo", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, root := startFake(t), t.TempDir()
			must(t, os.MkdirAll(filepath.Join(root, "homes/me/project"), 0o755))
			must(t, os.Mkdir(filepath.Join(root, "homes/metoo"), 0o755))
			must(t, os.Symlink("homes/me", filepath.Join(root, "link")))
			cmd, out := withFake(t, d, "create", "--name", "x", "--workspace", filepath.Join(root, tt.dir))
			cmd.Env = append(cmd.Env, "HOME="+filepath.Join(root, "homes/me"))
			must(t, cmd.Run())
			got := out.String()
			if !strings.Contains(got, tt.says) || (strings.Count(got, "carboy: --workspace ") == 1) != (tt.says != "") {
				t.Errorf("got %q, want %q", got, tt.says)
			}
		})
	}
}

func TestHomeIn(t *testing.T) {
	if got := cli.HomeIn("/", nil); got != "is the whole machine" {
		t.Errorf("/: %q", got)
	}
	if got := cli.HomeIn("/usr", []string{"", "relative", "/nonexistent"}); got != "" {
		t.Errorf("/usr: %q", got)
	}
}

const passwd = `root:x:0:0:root:/root:/bin/bash
daemon:x:1:1::/usr/sbin:/usr/sbin/nologin
# a comment
broken:x:1000
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
ann:x:1000:1000:Ann,,,:/home/ann:/bin/zsh
negative:x:-1:0::/negative:/bin/sh
`

func TestPasswdHomes(t *testing.T) {
	if diff := cmp.Diff([]string{"/root", "/home/ann"}, cli.PasswdHomes(strings.NewReader(passwd))); diff != "" {
		t.Error(diff)
	}
}

func FuzzPasswdHomes(f *testing.F) {
	f.Add(passwd)
	f.Fuzz(func(t *testing.T, text string) {
		for _, home := range cli.PasswdHomes(strings.NewReader(text)) {
			if !strings.Contains(text, ":"+home+":") {
				t.Errorf("%q is not in it", home)
			}
		}
	})
}
