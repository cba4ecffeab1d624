package backendtest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// Instances outlive the daemon that started them: another wall over the same
// state finds them, speaks to them, sees their end and ends them.
func testAdoption(t *testing.T, s *suite) {
	first := s.open(t)
	b := first.begin(t)
	b.sh(t, "", "echo kept > /workspace/f; sleep 7072 >/dev/null 2>&1 & "+executed("sleep 7072"))

	second := s.openAt(t, first.state)
	wantInstances(t, second, b.id)
	wantAlive(t, second, b.id, true)
	again := newInstance(t, second, b.sb, nil)
	again.says(t, "cat /workspace/f; pgrep -c -f '^sleep 7072'", "kept\n1\n")

	waits := waiting(t, second, b.id)
	third := s.openAt(t, first.state)
	third.mustStop(t, b.id)
	if err := (<-waits).err; err != nil {
		t.Errorf("Wait of an instance that an earlier process started: %v", err)
	}
	for _, w := range []*world{first, second, third} {
		wantAlive(t, w, b.id, false)
		wantInstances(t, w, b.id)
	}
	second.restart(t, b.sb).says(t, "cat /workspace/f", "kept\n")

	// Another home has none of it.
	wantInstances(t, s.open(t))
}

// waited is what Wait returned.
type waited struct {
	reason sandbox.EndReason
	err    error
}

// waiting begins to wait for an instance's end.
func waiting(t *testing.T, w *world, id string) <-chan waited {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.For(2*time.Minute))
	done := make(chan waited, 1)
	go func() {
		defer cancel()
		reason, err := w.Wait(ctx, id)
		done <- waited{reason, err}
	}()
	return done
}

func testEndReasons(t *testing.T, s *suite) {
	t.Run("stopped", func(t *testing.T) {
		w := s.open(t)
		b := w.begin(t)
		waits := []<-chan waited{waiting(t, w, b.id), waiting(t, w, b.id)}
		w.mustStop(t, b.id)
		for _, c := range waits {
			if got := <-c; got.err != nil {
				t.Errorf("Wait: %v", got.err)
			}
		}
	})
	t.Run("killed-from-outside", func(t *testing.T) {
		w := s.open(t)
		b := w.begin(t)
		wait := waiting(t, w, b.id)
		killAll(t, b.id)
		if got := <-wait; got.err != nil || got.reason != sandbox.EndCrashed {
			t.Errorf("Wait = %q, %v, want %q", got.reason, got.err, sandbox.EndCrashed)
		}
		wantAlive(t, w, b.id, false)
		// Asked once more, after the fact.
		if got := <-waiting(t, w, b.id); got.err != nil || got.reason != sandbox.EndCrashed {
			t.Errorf("Wait, later = %q, %v, want %q", got.reason, got.err, sandbox.EndCrashed)
		}
		w.mustStop(t, b.id)
		w.restart(t, b.sb).says(t, "echo up", "up\n")
	})
	t.Run("cancelled-wait", func(t *testing.T) {
		w := s.open(t)
		b := w.begin(t)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if reason, err := w.Wait(ctx, b.id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %q, %v, want the context's error", reason, err)
		}
		wantAlive(t, w, b.id, true)
	})
	// Nothing that runs inside ends the instance.
	t.Run("killed-from-inside", func(t *testing.T) {
		w := s.open(t)
		b := w.begin(t)
		for _, user := range s.users() {
			b.run(t, command(user, "kill -9 1; kill -15 1; kill -9 -1"))
			wantAlive(t, w, b.id, true)
			b.says(t, "echo on", "on\n")
		}
	})
}

// A stop keeps the workspace, and what was changed of the root unless it says
// that this is lost.
func testStopAndStart(t *testing.T, s *suite) {
	w := s.open(t)
	b := w.begin(t)
	b.sh(t, "", "echo one > /workspace/f; mkdir -p ~/d; echo two > ~/d/g; ln -s g ~/d/l; head -c 5000000 /dev/urandom > /workspace/big")
	sum := b.sh(t, "", "sha256sum < /workspace/big")
	if s.Root {
		b.sh(t, "root", "echo three > /etc/carboy-conformance; echo '#!/bin/sh\necho four' > /usr/bin/carboy-conformance; chmod 755 /usr/bin/carboy-conformance")
	}
	for range 2 {
		lost := w.mustStop(t, b.id)
		b = w.restart(t, b.sb)
		b.says(t, "cat /workspace/f; sha256sum < /workspace/big", "one\n"+sum)
		if slices.Contains(lost, "root changes") {
			t.Logf("the wall says that it loses the root's changes")
			continue
		}
		b.says(t, "cat ~/d/l", "two\n")
		if s.Root {
			b.says(t, "cat /etc/carboy-conformance; carboy-conformance", "three\nfour\n")
		}
	}
}
