package bottle

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReplaceDir: what an agent left that can't be entered is in nobody's way.
func TestReplaceDir(t *testing.T) {
	dir, err := os.MkdirTemp("", "carboy-replace")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // it is as good as empty
	as := func(script string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh"}, args...)...)
		if os.Geteuid() == 0 { // from whom nothing is kept
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		return cmd.CombinedOutput()
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "skill")
	if out, err := as(`mkdir -p "$1/x/y" && echo old >"$1/SKILL.md" && ln -s / "$1/link" && chmod 0 "$1/x"`, at); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := as(`rm -rf -- "$1" 2>/dev/null`, at); err == nil {
		t.Fatalf("it is in nobody's way as it is: %s", out)
	}
	if out, err := as(replaceDir, at); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
