package jail_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
)

// TestGitVersion: a git that is too old is told by name, and not found out by objects that it
// seems to refuse.
func TestGitVersion(t *testing.T) {
	for _, tt := range []struct{ says, want string }{
		{"git version 2.32.0", ""},
		{"git version 3.0.1.windows.1", ""},
		{"git version 2.39.5 (Apple Git-154)", ""},
		{"git version 2.31.8", "is git 2.31.8, which is too old"},
		{"git version 1.99", "is git 1.99, which is too old"},
		{"hello", `version that can't be read: "hello"`},
		{"", "version that can't be read"},
	} {
		git := filepath.Join(t.TempDir(), "git")
		if err := os.WriteFile(git, []byte("#!/bin/sh\necho '"+tt.says+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		err := jail.CheckVersionForTest(t.Context(), git)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%q: %v, want %q", tt.says, err, tt.want)
		}
	}
}
