package instance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
)

// TestLockedFile: a lock that the process of an instance has is found, and named, whatever kind it is of.
func TestLockedFile(t *testing.T) {
	dir := t.TempDir()
	self, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(record{Processes: []procid.ID{self}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileInstance), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "data.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, lock := range []struct {
		name string
		set  func(free bool) error
	}{
		{"of-a-range", func(free bool) error {
			flock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
			if free {
				flock.Type = unix.F_UNLCK
			}
			return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &flock)
		}},
		{"of-the-whole", func(free bool) error {
			how := unix.LOCK_SH
			if free {
				how = unix.LOCK_UN
			}
			return unix.Flock(int(f.Fd()), how)
		}},
	} {
		t.Run(lock.name, func(t *testing.T) {
			for free, want := range map[bool]string{false: "data.db", true: ""} {
				if err := lock.set(free); err != nil {
					t.Fatal(err)
				}
				if got := lockedFile(dir); got != want {
					t.Errorf("with it free %v: %q, want %q", free, got, want)
				}
			}
			if err := lock.set(true); err != nil {
				t.Fatal(err)
			}
		})
	}
}
