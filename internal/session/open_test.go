package session_test

import (
	"context"
	"regexp"
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

// A session that an older daemon wrote down, in the words of LangBot's Box, is
// the same to one of now.
func TestAdoptsOlderRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		d := w.boot(t, config())
		run(t, d, asked("k", "touch"))
		before, err := d.Get(t.Context(), ann, "k")
		if err != nil {
			t.Fatal(err)
		}
		d.shutdown()
		all, err := w.store.Sessions(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("Sessions = %v, %v", all, err)
		}
		b, err := record.Marshal(all[0])
		if err != nil {
			t.Fatal(err)
		}
		older := regexp.MustCompile(`"spec":\{.*?\},"image"`).ReplaceAllLiteralString(string(b),
			`"spec":{"session_id":"k","cmd":"","workdir":"","timeout_sec":0,"network":"off","env":null,"image":"rockchin/langbot-sandbox:latest","host_path_mode":"rw","mount_path":"/workspace","extra_mounts":null,"persistent":false,"cpus":1,"memory_mb":512,"pids_limit":128,"read_only_rootfs":true,"workspace_quota_mb":0},"image"`)
		rec, err := record.Parse([]byte(older))
		if err != nil {
			t.Fatalf("%v: %s", err, older)
		}
		if err := w.store.SaveSession(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		d = w.boot(t, config())
		defer w.check(t)
		defer d.shutdown()
		run(t, d, asked("k", "echo x"))
		if is, err := d.Get(t.Context(), ann, "k"); err != nil || is.BackendSessionID != before.BackendSessionID {
			t.Errorf("its sandbox is %s, want %s: %v", is.BackendSessionID, before.BackendSessionID, err)
		}
		other := asked("k", "echo x")
		other.CPUs, other.Network = 2, "on"
		_, err = d.Exec(t.Context(), ann, other)
		wantFields(t, err, "network", "cpus")
	})
}
