package rights_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/rights"
)

// onThread runs f on a thread that nobody uses afterwards.
func onThread(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

const capSetID = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID

// What is set is what the thread has: files say so, and so does the kernel.
func TestSets(t *testing.T) {
	dir, err := os.MkdirTemp("", "rights-") // one that others may search
	if err == nil {
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	id := rights.Identity{UID: 1234, GID: 1235, Groups: []uint32{9, 7}}
	owner := func(t *testing.T, name string) [2]uint32 {
		t.Helper()
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Error(err)
			return [2]uint32{}
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Error(err)
		}
		return [2]uint32{st.Uid, st.Gid}
	}
	for name, set := range map[string]func() error{
		"over-files": id.OverFiles,
		"of-files":   func() error { return rights.OfFiles(id.UID, id.GID) },
		"effective":  id.Effective,
	} {
		t.Run(name, func(t *testing.T) {
			onThread(t, func() {
				if got, want := owner(t, name+"-before"), [2]uint32{}; got != want {
					t.Errorf("before: files are of %d", got)
				}
				if err := set(); err != nil {
					t.Fatal(err)
				}
				if got, want := owner(t, name), [2]uint32{id.UID, id.GID}; got != want {
					t.Errorf("files are of %d, want %d", got, want)
				}
				if err := errors.Join(rights.Identity{}.Effective(), rights.OfFiles(0, 0)); err != nil {
					t.Error("back to root:", err)
				}
			})
		})
	}
}

// What did not take effect is an error, also where the kernel's call says that all is
// well: the calls for the ids of files always do.
func TestRefused(t *testing.T) {
	id := rights.Identity{UID: 1234, GID: 1235, Groups: []uint32{7}}
	tests := []struct {
		name string
		do   func() error
	}{
		{"over-files", id.OverFiles},
		{"of-files", func() error { return rights.OfFiles(1234, 1235) }},
		{"effective", id.Effective},
		{"group", func() error { return rights.Group(1235) }},
		{"real", func() error { return rights.Real(1234, 1235) }},
		{"more-capabilities", rights.Capabilities{Effective: capSetID, Permitted: capSetID}.Set},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			onThread(t, func() {
				if err := tt.do(); err != nil {
					t.Error("with all capabilities:", err)
				}
			})
			onThread(t, func() {
				if err := (rights.Capabilities{}).Set(); err != nil {
					t.Fatal(err)
				}
				if err := tt.do(); !errors.Is(err, unix.EPERM) {
					t.Errorf("without capabilities: got %v, want %v", err, unix.EPERM)
				}
			})
		})
	}
}

// An id that means no change is none.
func TestNoChange(t *testing.T) {
	const none = ^uint32(0)
	for name, do := range map[string]func() error{
		"user-of-files":   func() error { return rights.OfFiles(none, 0) },
		"group-of-files":  func() error { return rights.OfFiles(0, none) },
		"effective-user":  rights.Identity{UID: none}.Effective,
		"effective-group": rights.Identity{GID: none}.Effective,
		"group":           func() error { return rights.Group(none) },
		"real-user":       func() error { return rights.Real(none, 0) },
		"real-group":      func() error { return rights.Real(0, none) },
	} {
		t.Run(name, func(t *testing.T) {
			onThread(t, func() {
				if err := do(); err == nil {
					t.Error("no error")
				}
			})
		})
	}
}

func TestHeld(t *testing.T) {
	onThread(t, func() {
		want := rights.Capabilities{Effective: 1 << unix.CAP_CHOWN, Permitted: capSetID | 1<<unix.CAP_CHOWN}
		if err := want.Set(); err != nil {
			t.Fatal(err)
		}
		if got, err := rights.Held(); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	})
}
