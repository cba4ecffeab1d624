package changes_test

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/carboy-sandbox/carboy/internal/cli/changes"
)

func TestLineCounter(t *testing.T) {
	tests := []struct {
		name, patch    string
		added, removed int
	}{
		{"empty", "", 0, 0},
		{"change", "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n", 1, 1},
		{"short-header", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+c\n\\ No newline at end of file\n", 1, 1},
		{"lines-like-headers", "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n---- x\n-- y\n+++++ z\n+@@ -1 +1 @@\n", 2, 2},
		{"two-hunks", "@@ -1 +1,2 @@ func\n a\n+b\n@@ -9,2 +10 @@\n-x\n y\n", 1, 1},
		{"new", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", 2, 0},
		{"binary", "Binary files a/f and b/f differ\n", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.patch), iotest.OneByteReader(strings.NewReader(tt.patch))} {
				var c changes.LineCounter
				if _, err := io.Copy(&c, r); err != nil {
					t.Fatal(err)
				}
				if added, removed := c.Counts(); added != tt.added || removed != tt.removed {
					t.Errorf("got +%d -%d, want +%d -%d", added, removed, tt.added, tt.removed)
				}
			}
		})
	}
}
