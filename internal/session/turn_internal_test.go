package session

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tn turn
		if !tn.try() {
			t.Fatal("a free turn was not given")
		}
		if tn.try() {
			t.Fatal("a turn was given twice")
		}
		var got []int
		enter := func(ctx context.Context, n int, limit <-chan time.Time) {
			go func() {
				if tn.take(ctx, limit) {
					got = append(got, n)
					tn.give()
				}
			}()
			synctest.Wait()
		}
		leaving, leave := context.WithCancel(t.Context())
		enter(t.Context(), 1, nil)
		enter(leaving, 2, nil)
		enter(t.Context(), 3, time.After(time.Second))
		enter(t.Context(), 4, time.After(time.Minute))
		leave()
		time.Sleep(2 * time.Second)
		tn.give()
		synctest.Wait()
		if want := []int{1, 4}; !slices.Equal(got, want) {
			t.Errorf("the turn went to %v, want %v", got, want)
		}
		if tn.taken || len(tn.waiting) != 0 {
			t.Errorf("left: %+v", &tn)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if !tn.take(ended, nil) { // nothing to wait for
			t.Error("a free turn was not given")
		}
	})
}

// Whoever looks at a session may be the last to leave it.
func TestLeave(t *testing.T) {
	r := &Runtime{sessions: map[id]*session{}, awake: 1}
	s := newSession(id{"uid:0", "a"})
	s.counts, s.leases = true, 2
	r.sessions[s.id] = s
	r.leave(s)
	if len(r.sessions) != 1 {
		t.Fatal("a session that is in use was dropped")
	}
	r.leave(s)
	if len(r.sessions) != 0 || r.awake != 0 {
		t.Errorf("a session of which nothing is there takes room: %d of them, %d counted", len(r.sessions), r.awake)
	}
}

func TestOpenDoesNotWait(t *testing.T) {
	p := filepath.Join(t.TempDir(), "workspace")
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := open(sandbox.HostDir{Path: p}); err == nil {
		f.Close()
		t.Error("a fifo was opened as a workspace")
	}
}

func TestVolumeName(t *testing.T) {
	seen := map[string]string{}
	for _, p := range []string{"/data/box/a b", "/data/box/a-b", "/data/box/a/b", "/data/box/ä", "/data/box/" + string(make([]byte, 500))} {
		name := volumeName(p[len("/data/box/"):], p)
		if len(name) > 128 || seen[name] != "" {
			t.Errorf("%q is called %q, as is %q", p, name, seen[name])
		}
		for _, c := range name {
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				t.Errorf("%q is called %q", p, name)
			}
		}
		seen[name] = p
	}
}

func FuzzShown(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\n\xff")
	f.Fuzz(func(t *testing.T, key string) {
		for _, c := range shown(key) {
			if c < ' ' || c == 0x7f {
				t.Errorf("shown(%q) has %q", key, c)
			}
		}
		if len(shown(key)) > 5*maxShown {
			t.Errorf("shown(%q) is long", key)
		}
	})
}
