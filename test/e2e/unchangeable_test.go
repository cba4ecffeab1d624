package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApplyLeavesWhatIsAnothers: an ordinary user's tree has what only root may read, or write to. An apply
// takes the rest, and names what it leaves, as the diff does.
func TestApplyLeavesWhatIsAnothers(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newWorld(t).ordinaryHome(carboy)
		h.env = append(h.env, "HOME="+h.dir)
		dir := h.edited(map[string]string{"a": "old\n", "closed/f": "root's\n", "shared/g": "root's\n", "z": "old\n"})
		for _, name := range []string{"closed/f", "closed", "shared/g", "shared"} {
			if err := os.Chown(filepath.Join(dir, name), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
			t.Fatal(err)
		}
		name := h.create("--isolation", wall, "--workspace", dir)
		h.ok("exec", name, "--", "sh", "-c", "echo new >a; echo new >z; rm -rf shared closed; mkdir shared closed; echo new >shared/g; echo new >closed/x")
		shown := h.run(nil, "diff", "--names", name)
		r := h.run(nil, "apply", name)
		for _, text := range []string{"closed", "shared/g", "you may not read", "you may not write in shared"} {
			if !strings.Contains(r.stdout+r.stderr, text) || !strings.Contains(shown.stdout+shown.stderr, strings.TrimPrefix(text, "you may not ")) {
				t.Errorf("%q is not said: diff: %+v\napply: %+v", text, shown, r)
			}
		}
		for file, want := range map[string]string{"a": "new\n", "z": "new\n", "closed/f": "root's\n", "shared/g": "root's\n"} {
			if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(b) != want {
				t.Errorf("%s: %q, %v, want %q; apply: %+v", file, b, err, want, r)
			}
		}
	})
}
