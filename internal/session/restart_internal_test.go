package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/skill"
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

// A guest that keeps who brings it skills waiting keeps nobody else's session.
func TestRestartedWhileSkillsAreBrought(t *testing.T) {
	store, err := skill.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{sessions: map[id]*session{}, log: slog.New(slog.DiscardHandler)}
	s := newSession(id{"uid:0", "a"})
	s.skills = newSkills(json.RawMessage(`{"x":{"dir":"x","mode":"rw","sum":"0"}}`))
	g := &silent{asked: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan struct{}, 2)
	go func() { _, _ = store.Bring(ctx, g, s.skills.brought, nil); ends <- struct{}{} }()
	<-g.asked
	go func() { r.restarted(s, &sandbox.Sandbox{Backend: "new"}); ends <- struct{}{} }()
	seen := func() bool {
		if !r.mu.TryLock() {
			return false
		}
		defer r.mu.Unlock()
		return s.wall == "new"
	}
	for limit := time.Now().Add(10 * time.Second); !seen(); runtime.Gosched() {
		if time.Now().After(limit) {
			t.Error("all sessions wait for one guest")
			break
		}
	}
	cancel()
	<-ends
	<-ends
}
