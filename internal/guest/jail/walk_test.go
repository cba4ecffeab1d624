package jail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// A command begins in no directory that the agent has open, nor is it a
// program that the agent has: a child has all of that until it executes.
func TestNothingOfTheAgentsByProc(t *testing.T) {
	dir, err := os.MkdirTemp("", "carboy-walk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	program, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	fd := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	for name, target := range map[string]string{"link": fd, "chain": "link", "plain": "sub", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := start(t, jail.Config{PIDNamespace: true})
	tests := []struct {
		name, dir, program string
		fails              bool
	}{
		{"held", fd, "/bin/true", true},
		{"of-the-thread", fmt.Sprintf("/proc/thread-self/fd/%d", held.Fd()), "/bin/true", true},
		{"below", fd + "/sub", "/bin/true", true},
		{"planted", filepath.Join(dir, "link"), "/bin/true", true},
		{"planted-twice", filepath.Join(dir, "chain", "sub"), "/bin/true", true},
		{"own-directory", "/proc/self/cwd", "/bin/true", true},
		{"own-root", "/proc/self/root", "/bin/true", true},
		{"loop", filepath.Join(dir, "loop"), "/bin/true", true},
		{"program", "/", fmt.Sprintf("/proc/self/fd/%d", program.Fd()), true},
		{"own-program", "/", "/proc/self/exe", true},
		{"by-its-name", dir, "/bin/true", false},
		{"by-a-link", filepath.Join(dir, "plain", ".", "..", "up"), "/bin/true", false},
		{"proc-itself", "/proc", "/bin/true", false},
		{"a-process", "/proc/1", "/bin/true", false},
	}
	for _, user := range []jail.User{{}, {UID: 1000, GID: 1000}} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s-of-%d", tt.name, user.UID), func(t *testing.T) {
				null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer null.Close()
				p, _, err := j.Spawn(jail.Command{
					Argv: []string{tt.program}, Dir: tt.dir, User: user, Files: [3]*os.File{null, null, null},
				})
				var start *jail.StartError
				switch {
				case err == nil:
					p.Wait()
					if tt.fails {
						t.Error("it ran")
					}
				case !tt.fails || !errors.As(err, &start):
					t.Error(err)
				}
			})
		}
	}
}
