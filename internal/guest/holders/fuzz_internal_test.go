package holders

import (
	"strings"
	"testing"
)

// What a process can have written into its /proc files leads to no path but one below the directory.
func FuzzMapped(f *testing.F) {
	f.Add([]byte("7f00-7f01 rw-s 00000000 08:01 12                         /workspace/db\n"))
	f.Add([]byte("7f00-7f01 rw-p 00000000 08:01 12 /workspace/db (deleted)\nx\n a b c d e f g\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if path, ok := mapped(raw, "/workspace"); ok && path != "/workspace" && !strings.HasPrefix(path, "/workspace/") {
			t.Errorf("%q from %q", path, raw)
		}
		_ = writable(raw)
	})
}
