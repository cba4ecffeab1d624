// Package storetest is the suite that every store passes.
package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Store is what the suite tests.
type Store interface {
	sandbox.Store
	sandbox.EventLog
}

// Record returns a record with something in every field. Different n give
// different IDs and names.
func Record(n int) *sandbox.Sandbox {
	at := time.Date(2026, 11, 21, 1, 2, 3, 456789, time.UTC)
	dir := sandbox.HostDir{Path: "/home/ann/work", Dev: 66, Ino: 1<<63 + 7, UID: 1000, GID: 1001}
	return &sandbox.Sandbox{
		ID:    fmt.Sprintf("sb_%020d", n),
		Owner: "uid:1000",
		Spec: sandbox.Spec{
			Name: fmt.Sprintf("web-%d", n), Isolation: "process", Stronger: []string{"gvisor", "microvm"},
			Image: "debian:12@sha256:" + strings.Repeat("0f", 32), User: "user", Network: "off",
			Workspace: sandbox.Workspace{Mode: sandbox.WorkspaceCOW, Source: dir},
			Mounts:    []sandbox.Mount{{Source: dir, Target: "/mnt/x", ReadOnly: true}},
			Limits: sandbox.Limits{
				CPUs: 1.5, Memory: 1 << 30, PIDs: 100, Disk: 1 << 31, Inodes: 5000,
				Explicit: map[string]bool{"cpus": true},
			},
			Env:    map[string]string{"GREETING": "hello\nwörld \u2028 <&>"},
			Labels: map[string]string{"team": "red"},
			TTL:    time.Hour, OnExpiry: sandbox.OnExpiryRemove, Ephemeral: true,
			Traffic: sandbox.Traffic{Restricted: true, MaskHost: "localhost:${PORT}", AutoResume: true},
		},
		State: sandbox.StateStopped, Ended: sandbox.EndOutOfMemory, Lost: []string{"processes"},
		Backend: "gvisor", Why: "process can't: no root inside; gvisor is allowed and stronger",
		Enforced: []sandbox.Enforcement{{Promise: "memory", Enforced: true, Mechanism: "cgroup"}},
		Token:    "a-secret-token", TrafficToken: "a-traffic-token",
		CreatedAt: at, StartedAt: at.Add(time.Second), EndedAt: at.Add(time.Minute), ExpiresAt: at.Add(time.Hour),
		Starts: 3, Kept: true,
	}
}

// Run tests the stores that open returns, a new and empty one per subtest.
func Run(t *testing.T, open func(*testing.T) Store) {
	for _, tc := range []struct {
		name string
		test func(*testing.T, Store)
	}{
		{"round-trip", testRoundTrip},
		{"minimal-record", testMinimal},
		{"unknown", testUnknown},
		{"replace", testReplace},
		{"list", testList},
		{"name-taken", testNameTaken},
		{"name-moves", testNameMoves},
		{"delete", testDelete},
		{"copies", testCopies},
		{"ended-context", testEndedContext},
		{"events", testEvents},
		{"events-bounded", testEventsBounded},
		{"events-deleted", testEventsDeleted},
		{"concurrent", testConcurrent},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, open(t)) })
	}
}

func put(t *testing.T, s Store, sb *sandbox.Sandbox) {
	t.Helper()
	if err := s.Put(t.Context(), sb); err != nil {
		t.Fatalf("Put %s: %v", sb.ID, err)
	}
}

func wantRecord(t *testing.T, s Store, want *sandbox.Sandbox) {
	t.Helper()
	got, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatalf("Get %s: %v", want.ID, err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("Get %s (-want +got):\n%s", want.ID, d)
	}
}

func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s = %v (kind %q), want kind %q", what, err, got, want)
	}
}

func testRoundTrip(t *testing.T, s Store) {
	put(t, s, Record(1))
	wantRecord(t, s, Record(1))
}

func testMinimal(t *testing.T, s Store) {
	sb := &sandbox.Sandbox{ID: "sb_a", Spec: sandbox.Spec{Name: "a"}}
	put(t, s, sb)
	wantRecord(t, s, sb)
}

func testUnknown(t *testing.T, s Store) {
	_, err := s.Get(t.Context(), "sb_none")
	wantKind(t, "Get", err, sandbox.NotFound)
	if err := s.Delete(t.Context(), "sb_none"); err != nil {
		t.Errorf("Delete = %v, want nil", err)
	}
	if evs, err := s.Events(t.Context(), "sb_none"); err != nil || len(evs) != 0 {
		t.Errorf("Events = %v, %v; want none", evs, err)
	}
	if err := s.Forget(t.Context(), "sb_none"); err != nil {
		t.Errorf("Forget = %v, want nil", err)
	}
}

func testReplace(t *testing.T, s Store) {
	put(t, s, Record(1))
	sb := Record(1)
	sb.State, sb.Token, sb.ExpiresAt, sb.Lost = sandbox.StateRunning, "another", time.Time{}, nil
	sb.TrafficToken = ""
	put(t, s, sb)
	wantRecord(t, s, sb)
	if all, err := s.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List = %d records, %v; want 1", len(all), err)
	}
}

func testList(t *testing.T, s Store) {
	if all, err := s.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("List = %v, %v; want none", all, err)
	}
	want := []*sandbox.Sandbox{Record(1), Record(2), Record(3)}
	for _, i := range []int{2, 0, 1} {
		put(t, s, want[i])
	}
	got, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("List (-want +got):\n%s", d)
	}
}

func testNameTaken(t *testing.T, s Store) {
	put(t, s, Record(1))
	sb := Record(2)
	sb.Spec.Name = Record(1).Spec.Name
	wantKind(t, "Put", s.Put(t.Context(), sb), sandbox.Conflict)
	_, err := s.Get(t.Context(), sb.ID)
	wantKind(t, "Get", err, sandbox.NotFound)
	wantRecord(t, s, Record(1))
	sb.Owner = "uid:1001"
	put(t, s, sb)
}

func testNameMoves(t *testing.T, s Store) {
	put(t, s, Record(1))
	if err := s.Delete(t.Context(), Record(1).ID); err != nil {
		t.Fatal(err)
	}
	sb := Record(2)
	sb.Spec.Name = Record(1).Spec.Name
	put(t, s, sb)
}

func testDelete(t *testing.T, s Store) {
	put(t, s, Record(1))
	put(t, s, Record(2))
	if err := s.Delete(t.Context(), Record(1).ID); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), Record(1).ID)
	wantKind(t, "Get", err, sandbox.NotFound)
	wantRecord(t, s, Record(2))
}

func testCopies(t *testing.T, s Store) {
	sb := Record(1)
	put(t, s, sb)
	sb.Spec.Env["GREETING"] = "changed after Put"
	got, err := s.Get(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.Spec.Labels["team"] = "changed after Get"
	got.Lost[0] = "changed after Get"
	wantRecord(t, s, Record(1))
}

func testEndedContext(t *testing.T, s Store) {
	put(t, s, Record(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changed := Record(1)
	changed.Starts++
	if err := s.Put(ctx, changed); err == nil {
		t.Error("Put = nil, want an error")
	}
	if err := s.Delete(ctx, changed.ID); err == nil {
		t.Error("Delete = nil, want an error")
	}
	wantRecord(t, s, Record(1))
}

func event(n int) sandbox.Event {
	at := time.Date(2026, 11, 21, 0, 0, 0, n, time.UTC)
	return sandbox.Event{Time: at, Type: "test", Message: fmt.Sprintf("message %d", n)}
}

func appendAll(t *testing.T, s Store, id string, from, to int) (want []sandbox.Event) {
	t.Helper()
	for n := from; n < to; n++ {
		if err := s.Append(t.Context(), id, event(n)); err != nil {
			t.Fatal(err)
		}
		want = append(want, event(n))
	}
	return want
}

func wantEvents(t *testing.T, s Store, id string, want []sandbox.Event) {
	t.Helper()
	got, err := s.Events(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("Events (-want +got):\n%s", d)
	}
}

func testEvents(t *testing.T, s Store) {
	a := appendAll(t, s, "sb_a", 0, 3)
	b := appendAll(t, s, "sb_b", 5, 6)
	a = append(a, appendAll(t, s, "sb_a", 7, 8)...)
	wantEvents(t, s, "sb_a", a)
	wantEvents(t, s, "sb_b", b)
}

func testEventsBounded(t *testing.T, s Store) {
	other := appendAll(t, s, "sb_b", 0, 1)
	all := appendAll(t, s, "sb_a", 0, sandbox.MaxEvents+7)
	wantEvents(t, s, "sb_a", all[7:])
	wantEvents(t, s, "sb_b", other)
}

func testEventsDeleted(t *testing.T, s Store) {
	put(t, s, Record(1))
	appendAll(t, s, Record(1).ID, 0, 3)
	b := appendAll(t, s, "sb_b", 0, 3)
	if err := s.Delete(t.Context(), Record(1).ID); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, Record(1).ID, nil)
	wantEvents(t, s, "sb_b", b)
	if err := s.Forget(t.Context(), "sb_b"); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, "sb_b", nil)
}

func testConcurrent(t *testing.T, s Store) {
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for i := range 5 {
				sb := Record(n)
				sb.Starts = i
				if err := s.Put(t.Context(), sb); err != nil {
					t.Error(err)
				}
				if err := s.Append(t.Context(), sb.ID, event(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all, err := s.List(t.Context())
	if err != nil || len(all) != 16 {
		t.Fatalf("List = %d records, %v; want 16", len(all), err)
	}
	for _, sb := range all {
		if sb.Starts != 4 {
			t.Errorf("%s has Starts %d, want 4", sb.ID, sb.Starts)
		}
	}
}
