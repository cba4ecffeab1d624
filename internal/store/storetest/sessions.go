package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// Sessions is what RunSessions tests.
type Sessions interface {
	SaveSession(ctx context.Context, s record.Session) error
	DeleteSession(ctx context.Context, id string) error
	Sessions(ctx context.Context) ([]record.Session, error)
}

// Session returns a record with something in every field. Different n give
// different IDs and keys.
func Session(n int) record.Session {
	at := time.Date(2026, 11, 21, 1, 2, 3, 456789, time.UTC)
	return record.Session{
		ID: fmt.Sprintf("bx_%020d", n), Owner: "box:ws-1", Key: fmt.Sprintf("group/../room\u2028%d", n), State: record.Asleep,
		Sandbox: fmt.Sprintf("box-%d", n), Image: "debian:12@sha256:00",
		Spec: request.Session{
			Key: fmt.Sprintf("group/../room\u2028%d", n), Network: "on", Image: "debian:12", Isolation: "process", ReadOnlyRoot: true,
			CPUs: 0.5, Memory: 256 << 20, PIDs: 64, Persistent: true,
			Workspace: request.Workspace{HostPath: "/srv/x", Mode: "rw", Target: "/workspace", Size: 10 << 20, Inodes: 100, Quota: "hard"},
			Mounts:    []request.Mount{{HostPath: "/srv/y", Target: "/y", Mode: "ro"}},
		},
		Workspace: record.Workspace{
			Kind: record.HostDir, Dir: sandbox.HostDir{Path: "/srv/x", Dev: 1, Ino: 1<<63 + 7, UID: 1, GID: 2}, Volume: "vol_x",
			Quota: "soft", Limit: 10 << 20, Inodes: 100,
		},
		Notices: []string{"replaced"}, CreatedAt: at, LastUsedAt: at.Add(time.Second), SleptAt: at.Add(time.Minute),
		Processes: map[string]json.RawMessage{"default": json.RawMessage(`{"id":"c1"}`)},
		Skills:    json.RawMessage(`{"a":1}`),
	}
}

// RunSessions tests the stores that open returns, a new and empty one per
// subtest.
func RunSessions(t *testing.T, open func(*testing.T) Sessions) {
	want := func(t *testing.T, s Sessions, want ...record.Session) {
		t.Helper()
		got, err := s.Sessions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	save := func(t *testing.T, s Sessions, r record.Session) {
		t.Helper()
		if err := s.SaveSession(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("round-trip", func(t *testing.T) {
		s := open(t)
		want(t, s)
		save(t, s, Session(2))
		save(t, s, Session(1))
		want(t, s, Session(1), Session(2))
	})
	t.Run("replace", func(t *testing.T) {
		s := open(t)
		save(t, s, Session(1))
		r := Session(1)
		r.State, r.Sandbox, r.Processes, r.Notices = record.Closing, "box-other", nil, nil
		save(t, s, r)
		want(t, s, r)
	})
	t.Run("key-taken", func(t *testing.T) {
		s := open(t)
		save(t, s, Session(1))
		r := Session(2)
		r.Key = Session(1).Key
		wantKind(t, "SaveSession", s.SaveSession(t.Context(), r), sandbox.Conflict)
		want(t, s, Session(1))
		r.Owner = "another"
		save(t, s, r)
	})
	t.Run("delete", func(t *testing.T) {
		s := open(t)
		save(t, s, Session(1))
		for range 2 {
			if err := s.DeleteSession(t.Context(), Session(1).ID); err != nil {
				t.Errorf("DeleteSession = %v, want nil", err)
			}
		}
		want(t, s)
	})
	t.Run("copies", func(t *testing.T) {
		s := open(t)
		r := Session(1)
		save(t, s, r)
		r.Notices[0] = "changed"
		want(t, s, Session(1))
	})
	t.Run("ended-context", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s.SaveSession(ctx, Session(1)) == nil {
			t.Error("saved although the context has ended")
		}
		want(t, s)
	})
}
