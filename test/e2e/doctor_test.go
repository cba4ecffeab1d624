package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The lines about networks are what root can have, and what others can't.
func TestDoctorTriesNetworks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	tests := []struct {
		name        string
		uid         uint32
		state       string
		found, mend string
	}{
		{"root", 0, "ok", "attempts ended as promised", ""},
		{"ordinary", 12345, "missing", "not open to all users", "chmod 0666 /dev/net/tun"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if st, err := os.Stat("/dev/net/tun"); tt.uid != 0 && err == nil && st.Mode().Perm()&0o006 == 0o006 {
				t.Skip("/dev/net/tun is open to all users")
			}
			lines := diagnose(t, tt.uid)
			for _, wall := range wallNames {
				l := lines["network-"+wall]
				if l.State != tt.state || !strings.Contains(l.Found, tt.found) || !strings.Contains(l.Mend, tt.mend) {
					t.Errorf("%s: got %+v", wall, l)
				}
			}
			if l := lines["tap"]; tt.uid == 0 && l.State != "ok" {
				t.Errorf("got %+v", l)
			}
		})
	}
}

// diagnosed is what these tests read of a line of `carboy doctor --json`.
type diagnosed struct{ ID, State, Found, Mend string }

// diagnose runs doctor as uid, in a home that is left empty.
func diagnose(t *testing.T, uid uint32) map[string]diagnosed {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-doctor-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chown(dir, int(uid), int(uid)); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "carboy") // where every user can reach it
	must(t, copyFile(bin, carboy, 0o755))
	cmd := exec.CommandContext(context.Background(), bin, "doctor", "--json")
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "XDG_STATE_HOME=" + dir + "/state", "XDG_CACHE_HOME=" + dir + "/cache"}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.Output() // an exit code of 1 says that the default wall can't be had
	var r struct{ Lines []diagnosed }
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		t.Fatalf("%v: %v: %s", jsonErr, err, out)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "state", "*", ".*"))
	more, _ := filepath.Glob(filepath.Join(dir, ".carboy-doctor*"))
	if left = append(left, more...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	lines := map[string]diagnosed{}
	for _, l := range r.Lines {
		lines[l.ID] = l
	}
	return lines
}
