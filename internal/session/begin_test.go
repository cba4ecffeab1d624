package session_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Who starts a process whose sandbox ends at that moment is told so at once, and
// keeps nobody waiting.
func TestStartProcessAsItsSandboxEnds(t *testing.T) {
	for _, c := range []struct {
		name  string
		ends  func(w *world, d *daemon)
		class string
	}{
		{"deleted", func(_ *world, d *daemon) { _ = d.Delete(context.Background(), ann, "k") }, langbot.ClassSessionNotFound},
		{"dies", func(w *world, _ *daemon) { w.fake.Die(w.fake.Running()[0], sandbox.EndCrashed) }, langbot.ClassError},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, config(), func(t *testing.T, w *world, d *daemon) {
				run(t, d, asked("k", "echo x"))
				w.guests.does = func(text string) {
					if strings.HasPrefix(text, "mkdir ") { // the start has begun
						w.guests.does = nil
						done := make(chan struct{})
						go func() { defer close(done); c.ends(w, d) }()
						<-done
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				from := time.Now()
				_, err := d.StartProcess(ctx, ann, "k", sessions.ProcessSpec{Command: "serve"})
				wantClass(t, "StartProcess", err, c.class)
				if took := time.Since(from); took > 30*time.Second {
					t.Errorf("it took %v: %v", took, err)
				}
				if m := d.Metrics(); m.Processes != 0 {
					t.Errorf("metrics %+v", m)
				}
				run(t, d, asked("k", "echo x"))
				launch(t, d, "k", "")
			})
		})
	}
}
