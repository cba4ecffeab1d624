package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/skill"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// silent is a guest that never answers.
type silent struct {
	skill.Guest
	asked chan struct{}
}

func (g *silent) Names(ctx context.Context) ([]string, error) {
	close(g.asked)
	<-ctx.Done()
	return nil, errors.New("gone")
}

// A session that is made anew has the agent of its new sandbox, though the old one's was
// asked while that was still half made.
func TestGuestIsOfTheSandbox(t *testing.T) {
	r := &Runtime{log: slog.New(slog.DiscardHandler)}
	s := newSession(id{"uid:0", "a"})
	s.rec.Sandbox = "first"
	first := r.guest(s)
	if again := r.guest(s); again != first {
		t.Error("its connections are not kept for the next command")
	}
	s.rec.Sandbox = "second"
	if second := r.guest(s); second == first {
		t.Error("it has the agent of a sandbox that is gone")
	}
}

// A guest that keeps who brings it skills waiting keeps nobody else's session.
func TestRestartedWhileSkillsAreBrought(t *testing.T) {
	store, err := skill.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{sessions: map[id]*session{}, log: slog.New(slog.DiscardHandler)}
	s := newSession(id{"uid:0", "a"})
	s.state = awake
	s.life.try()
	s.skills = newSkills(json.RawMessage(`{"x":{"dir":"x","mode":"rw","sum":"0"}}`))
	g := &silent{asked: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan struct{}, 2)
	go func() { _, _ = store.Bring(ctx, g, s.skills.brought, nil); ends <- struct{}{} }()
	<-g.asked
	go func() { _ = r.restarted(ctx, s, &sandbox.Sandbox{Backend: "new"}); ends <- struct{}{} }()
	seen := func() bool {
		if !r.mu.TryLock() {
			return false
		}
		defer r.mu.Unlock()
		return s.wall == "new"
	}
	if !patience.Until(10*time.Second, seen) {
		t.Error("all sessions wait for one guest")
	}
	cancel()
	<-ends
	<-ends
}

// Whoever looks at a session may be the last to leave it.
func TestLeave(t *testing.T) {
	r := &Runtime{sessions: map[id]*session{}, taken: 1}
	s := newSession(id{"uid:0", "a"})
	s.counted, s.leases = true, 2
	r.sessions[s.id] = s
	r.leave(s)
	if len(r.sessions) != 1 {
		t.Fatal("a session that is in use was dropped")
	}
	r.leave(s)
	if len(r.sessions) != 0 || r.taken != 0 {
		t.Errorf("a session of which nothing is there takes room: %d of them, %d counted", len(r.sessions), r.taken)
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
