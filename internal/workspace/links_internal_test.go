package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What Apply's own removal of a name did to a file is undone in its stamp, and
// nothing else: not what another does to the file at the same time, nor later.
func TestLostNames(t *testing.T) {
	tests := []struct {
		name          string
		during, later func(other string) error
		asFound       bool
	}{
		{name: "nobody", asFound: true},
		{name: "content-during", during: func(o string) error { return os.WriteFile(o, []byte("mine"), 0o644) }},
		{name: "mode-during", during: func(o string) error { return os.Chmod(o, 0o600) }},
		{name: "name-during", during: func(o string) error { return os.Link(o, fmt.Sprint(o, time.Now().UnixNano())) }},
		{name: "content-later", later: func(o string) error { return os.WriteFile(o, []byte("mine"), 0o644) }},
		{name: "mode-later", later: func(o string) error { return os.Chmod(o, 0o600) }},
		{name: "name-later", later: func(o string) error { return os.Link(o, fmt.Sprint(o, time.Now().UnixNano())) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			other := filepath.Join(dir, "other")
			act := func(f func(string) error) {
				t.Helper()
				if f == nil {
					return
				}
				// A change time that is told apart: the clock is a coarse one.
				for was := statOf(t, other).Ctim; statOf(t, other).Ctim == was; {
					if err := f(other); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "a"), []byte("text"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(filepath.Join(dir, "a"), other); err != nil {
				t.Fatal(err)
			}
			found := newStamp(statOf(t, other))
			base, err := OpenBase(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer base.Close()
			a, err := newApplier(t.Context(), base, ApplyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			err = a.drop(base.dir, "a", "a", func() error {
				act(tt.during)
				return unix.Unlinkat(int(base.dir.Fd()), "a", 0)
			})
			if err != nil {
				t.Fatal(err)
			}
			act(tt.later)
			now := statOf(t, other)
			want := newStamp(now)
			if tt.asFound {
				want = found
			}
			if got := a.asFound(now); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func statOf(t *testing.T, name string) *unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	return &st
}
