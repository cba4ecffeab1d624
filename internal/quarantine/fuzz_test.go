package quarantine_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/carboy-sandbox/carboy/internal/quarantine"
)

// FuzzRefs: whatever a sandbox lists, what comes of it are names below its own, which git
// takes for names and a terminal for text.
func FuzzRefs(f *testing.F) {
	id := strings.Repeat("a", 40)
	for _, name := range []string{"HEAD", "refs/heads/fix", "refs/tags/v1", "refs/heads/a/../b", "refs/heads/.lock", "refs/heads/\x1b", "refs/heads/tags/x"} {
		f.Add([]byte(id + " " + name + "\n"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		here, err := quarantine.ParseRefsForTest(b)
		if err != nil {
			return
		}
		for _, name := range here {
			rest, ok := strings.CutPrefix(name, "refs/carboy/otter/")
			bad := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" ~^:?*[\\", r) })
			if !ok || rest == "" || bad >= 0 || strings.Contains(rest, "..") || strings.Contains(rest, "//") ||
				strings.Contains("/"+rest, "/.") || strings.HasSuffix(rest, ".lock") || strings.Contains(rest, ".lock/") || strings.Contains(rest, "@{") {
				t.Errorf("%q", name)
			}
		}
	})
}
