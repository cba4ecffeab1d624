package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestWarnings holds that one sentence is said of a home as the workspace or a
// writable mount, and of what has homes in it.
func TestWarnings(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"homes/me/project", "homes/metoo"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("homes/me", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	homes := []string{"", "relative", "/nonexistent", "/", filepath.Join(root, "link")}
	const cow, rw, ro = sandbox.WorkspaceCOW, sandbox.WorkspaceWritable, sandbox.WorkspaceReadOnly
	tests := []struct {
		name string
		mode sandbox.WorkspaceMode // "": a mount
		dir  string
		says string // "" nothing
	}{
		{"home", cow, "homes/me", "is a home: "},
		{"home-writable", rw, "homes/me", "what is written there is obeyed at once"},
		{"home-read-only", ro, "homes/me", ""},
		{"home-mounted", "", "homes/me", "what is written there is obeyed at once"},
		{"above", cow, "homes", "has homes in it: "},
		{"far-above", rw, ".", "has homes in it: "},
		{"below", cow, "homes/me/project", ""},
		{"beside", rw, "homes/metoo", ""},
		{"below-mounted", "", "homes/me/project", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := sandbox.HostDir{Path: filepath.Join(root, tt.dir)}
			spec := &sandbox.Spec{Workspace: sandbox.Workspace{Mode: tt.mode, Source: dir}}
			if tt.mode == "" {
				spec = &sandbox.Spec{Mounts: []sandbox.Mount{{Source: dir}, {Source: dir, ReadOnly: true}}}
			}
			got := warnings(spec, homes)
			if text := strings.Join(got, ""); !strings.Contains(text, tt.says) || (len(got) == 1) != (tt.says != "") {
				t.Errorf("got %q, want %q", got, tt.says)
			}
		})
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
	if got := passwdHomes(strings.NewReader(passwd)); !slices.Equal(got, []string{"/root", "/home/ann"}) {
		t.Errorf("got %q", got)
	}
}

func FuzzPasswdHomes(f *testing.F) {
	f.Add(passwd)
	f.Fuzz(func(t *testing.T, text string) {
		for _, home := range passwdHomes(strings.NewReader(text)) {
			if !strings.Contains(text, ":"+home+":") {
				t.Errorf("%q is not in it", home)
			}
		}
	})
}
