package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session"
	"github.com/carboy-sandbox/carboy/internal/session/record"
)

// slowStore reads its records after a time.
type slowStore struct {
	session.Store
	takes time.Duration
}

func (s slowStore) Sessions(ctx context.Context) ([]record.Session, error) {
	select {
	case <-time.After(s.takes):
		return s.Store.Sessions(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Who asks while a daemon starts is answered once it knows: a session that is
// there is never denied. What takes too long is said to be starting.
func TestCallsWhileItStarts(t *testing.T) {
	for name, tt := range map[string]struct {
		takes time.Duration
		found bool
	}{
		"waited for": {5 * time.Second, true},
		"too long":   {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d := w.boot(t, config())
				run(t, d, asked("s", "true"))
				d.shutdown()
				slow := slowStore{&w.store, tt.takes}
				d = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.fake}}, session.Options{Store: slow, Config: config()})
				from := time.Now()
				_, err := d.Get(t.Context(), ann, "s")
				took := time.Since(from)
				switch {
				case tt.found && err != nil:
					t.Errorf("Get = %v", err)
				case !tt.found && (sandbox.KindOf(err) != sandbox.Unavailable || took > time.Minute):
					t.Errorf("Get after %v = %v, want that the daemon is starting", took, err)
				}
				if tt.found {
					if list, err := d.List(t.Context(), ann); err != nil || len(list) != 1 {
						t.Errorf("List = %v, %v", list, err)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := d.Get(ctx, ann, "s"); !tt.found && sandbox.KindOf(err) != sandbox.Unavailable {
					t.Errorf("Get of one that has gone = %v", err)
				}
				d.shutdown()
				w.check(t)
			})
		})
	}
}
