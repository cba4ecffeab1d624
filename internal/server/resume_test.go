package server_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
	"github.com/carboy-sandbox/carboy/internal/server/servertest"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

func TestAutoResume(t *testing.T) {
	w := openWorld(t)
	sb := w.make(t, sandbox.Traffic{Restricted: true, AutoResume: true})
	asleep := w.make(t, sandbox.Traffic{})
	for _, s := range []*sandbox.Sandbox{sb, asleep} {
		if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, s.ID); err != nil {
			t.Fatal(err)
		}
	}
	if resp, body := w.do(t, portOf(asleep, nil)); resp.StatusCode != 502 || !strings.Contains(body, "stopped") {
		t.Errorf("one that did not ask for it: %d %s", resp.StatusCode, body)
	}
	if resp, body := w.do(t, portOf(sb, nil)); resp.StatusCode != 403 {
		t.Errorf("without its token: %d %s, want 403", resp.StatusCode, body)
	}
	q := portOf(sb, nil)
	q.host, q.path = "49983-"+sb.ID+"."+domain, "/health"
	if resp, _ := w.do(t, q); resp.StatusCode != 502 {
		t.Errorf("asked how it is: %d, want 502", resp.StatusCode)
	}
	if n := w.Wall.Starts(sb.ID); n != 1 {
		t.Fatalf("it was started %d times before anybody might", n)
	}
	var ok, bad atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			resp, _ := w.do(t, portOf(sb, map[string]string{"E2b-Traffic-Access-Token": sb.TrafficToken}))
			if resp.StatusCode == 200 {
				ok.Add(1)
			} else {
				bad.Add(1)
			}
		})
	}
	wg.Wait()
	if n := w.Wall.Starts(sb.ID); ok.Load() != 50 || n != 2 {
		t.Errorf("%d served, %d not, after %d starts; want 50, 0, 2", ok.Load(), bad.Load(), n)
	}
}

// A start that fails is told to all who wait, and tried once.
func TestAutoResumeFails(t *testing.T) {
	w := openWorld(t)
	sb := w.make(t, sandbox.Traffic{AutoResume: true})
	if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int64
	w.Wall.SetHook(func(_ context.Context, op sandboxtest.Op, _ string) error {
		if op == sandboxtest.Start {
			tries.Add(1)
			return errors.New("no room")
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if resp, body := w.do(t, portOf(sb, nil)); resp.StatusCode < 500 {
				t.Errorf("= %d %s, want an error", resp.StatusCode, body)
			}
		})
	}
	wg.Wait()
	if n := tries.Load(); n != 1 {
		t.Errorf("%d starts were tried, want 1", n)
	}
	w.Wall.SetHook(nil)
	servertest.Wait(t, "another try", func() bool {
		resp, _ := w.do(t, portOf(sb, nil))
		return resp.StatusCode == 200
	})
}

// A sandbox whose owner may not have it for as long as usual is woken all the
// same, for as long as it had.
func TestAutoResumeWithinLimits(t *testing.T) {
	w := newWorld(t)
	w.Kill()
	w.Options.PublicTraffic = true
	w.Options.Book = team.NewBook(team.Limits{Quota: sandbox.Quota{TTL: time.Minute}}, nil)
	w.Start()
	sb, err := w.Manager.Create(t.Context(), sandbox.Caller{Owner: "key:full"}, sandbox.Spec{
		TTL: time.Minute, OnExpiry: sandbox.OnExpiryStop, Traffic: sandbox.Traffic{AutoResume: true},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Manager.Stop(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil {
		t.Fatal(err)
	}
	if resp, body := w.do(t, portOf(sb, nil)); resp.StatusCode != 200 {
		t.Errorf("= %d %s, want it woken", resp.StatusCode, body)
	}
	if sb, err = w.Manager.Get(t.Context(), sandbox.Caller{Admin: true}, sb.ID); err != nil || sb.Spec.TTL != time.Minute {
		t.Errorf("it has %v to live, %v", sb.Spec.TTL, err)
	}
}
