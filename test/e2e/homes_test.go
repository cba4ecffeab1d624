package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// homeWorld is a machine's homes below one directory, and a home of carboy's
// whose user's home is one of them.
func homeWorld(t *testing.T) (h *home, homes string) {
	t.Helper()
	homes = t.TempDir()
	for _, dir := range []string{"me/project", "other"} {
		if err := os.MkdirAll(filepath.Join(homes, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return newHome(t, "HOME="+filepath.Join(homes, "me")), homes
}

// TestHomeAsWorkspace holds that one line is said where a home is the
// workspace, or holds one, before a command's own; that the API says the same;
// and that a directory which is refused is refused without it.
func TestHomeAsWorkspace(t *testing.T) {
	t.Parallel()
	h, homes := homeWorld(t)
	tests := []struct{ name, dir, says string }{
		{"home", homes + "/me", "is a home: "},
		{"home-writable", homes + "/me:rw", "is a home: "},
		{"home-read-only", homes + "/me:ro", ""},
		{"above", homes, "has homes in it: "},
		{"project", homes + "/me/project", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := h.run(nil, "run", "--isolation", "process", "--workspace", tt.dir, "--", "sh", "-c", "echo begun >&2")
			warned, _, worked := strings.Cut(r.stderr, "begun")
			if r.code != 0 || !worked || !strings.Contains(warned, tt.says) || strings.Contains(warned, "carboy: workspace ") != (tt.says != "") {
				t.Errorf("exit code %d, %q, want %q before it begins", r.code, r.stderr, tt.says)
			}
			var sb struct {
				Name     string   `json:"name"`
				Warnings []string `json:"warnings"`
			}
			if err := json.Unmarshal([]byte(h.ok("create", "--json", "--workspace", tt.dir)), &sb); err != nil {
				t.Fatal(err)
			}
			h.ok("rm", "-f", sb.Name)
			if text := strings.Join(sb.Warnings, ""); !strings.Contains(text, tt.says) || (len(sb.Warnings) == 1) != (tt.says != "") {
				t.Errorf("the API says %q, want %q", sb.Warnings, tt.says)
			}
		})
	}
	for _, dir := range []string{"/", "/home"} {
		if r := h.run(nil, "create", "--workspace", dir); r.code == 0 || !strings.HasPrefix(r.stderr, "carboy: host path ") || strings.Contains(r.stderr, "homes in it") {
			t.Errorf("%s: exit code %d, %q, want a refusal alone", dir, r.code, r.stderr)
		}
	}
}

// TestHomeIsHeldBack has everything written into a home that a program of the
// user's runs or obeys: all of it is held back, and taken when it is named.
func TestHomeIsHeldBack(t *testing.T) {
	t.Parallel()
	h, homes := homeWorld(t)
	me := filepath.Join(homes, "me")
	fits := strings.NewReplacer("y*ml", "yaml", "*", "x")
	names := []string{
		".bashrc", ".profile", ".zshrc", ".ssh/authorized_keys", ".config/autostart/x.desktop", ".Rprofile", ".irbrc", ".pdbrc", ".tmux.conf",
		"AGENTS.md", "CLAUDE.md", ".cursor/rules/x.mdc", ".local/bin/ls", ".node_modules/x/index.js", ".subversion/config",
	}
	for i, r := range workspace.HoldRules() {
		names = append(names, fmt.Sprintf("r%d/%s", i, fits.Replace(r.Pattern)))
	}
	box := h.create("--isolation", "process", "--workspace", me)
	script := "import os, sys\nfor p in sys.stdin.read().split('\\0'):\n    os.makedirs(os.path.dirname('./' + p), exist_ok=True)\n    open(p, 'w').write('x')\n"
	stdin := strings.NewReader(strings.Join(append(names, "free.txt"), "\x00"))
	if r := h.run(stdin, "exec", "-i", box, "--", "python3", "-c", script); r.code != 0 {
		t.Fatalf("write: %+v", r)
	}
	there := func(name string) bool {
		b, err := os.ReadFile(filepath.Join(me, name))
		return err == nil && string(b) == "x"
	}
	h.ok("apply", box)
	if !there("free.txt") {
		t.Error("what nothing obeys is not applied")
	}
	for _, name := range names {
		if there(name) {
			t.Errorf("%s is applied without being named", name)
		}
	}
	h.ok(append([]string{"apply", box}, names...)...)
	for _, name := range names {
		if !there(name) {
			t.Errorf("%s was named and is not taken", name)
		}
	}
	t.Logf("%d files", len(names))
}
