package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	guestv1 "github.com/carboy-sandbox/carboy/api/guest/v1"
	"github.com/carboy-sandbox/carboy/client"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// slowWriter takes a KiB a second, until ctx ends.
type slowWriter struct {
	ctx   context.Context
	tick  *time.Ticker
	taken int
}

func (w *slowWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += 100 {
		select {
		case <-w.ctx.Done():
			return n, context.Cause(w.ctx)
		case <-w.tick.C:
			w.taken += 100
		}
	}
	return len(p), nil
}

// Readers that hardly read hold back the commands that they follow, and
// nothing else: no memory grows with what is not read, and nobody waits.
func TestSlowReaders(t *testing.T) {
	const (
		readers = 8
		allowed = 48 << 20 // beside the output of a command each, caches and garbage
	)
	watched := 2 * time.Second
	if long.On() {
		watched = 6 * time.Second
	}
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		c := h.client(t)
		box, daemon := inside(h.id(name)), []int{h.daemonPID()}
		alone := h.median(t, c, name)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, readers)
		for i := range readers {
			w := &slowWriter{ctx: ctx, tick: time.NewTicker(100 * time.Millisecond)}
			defer w.tick.Stop()
			go func() {
				_, err := c.Exec(ctx, name, client.ExecOptions{Command: &guestv1.Command{Argv: []string{"yes", fmt.Sprint(i)}}, Stdout: w})
				ended <- err
			}()
		}
		// First the buffers that there are fill.
		held := func() [2]int { return [2]int{rss(daemon), rss(box)} }
		before := steady(held)
		beside := h.median(t, c, name)
		<-time.After(watched)
		after := [2]int{rss(daemon), rss(box)}
		stop()
		for range readers {
			if err := <-ended; err == nil || !errors.Is(err, context.Canceled) {
				t.Errorf("a slow reader ended by itself: %v", err)
			}
		}
		for i, who := range []string{"the daemon", "the sandbox"} {
			t.Logf("%s: %d MiB, %d MiB after %v", who, before[i]>>20, after[i]>>20, watched)
			if grown := after[i] - before[i]; grown > allowed {
				t.Errorf("%s grew by %d MiB beside slow readers", who, grown>>20)
			}
		}
		t.Logf("a command took %v before, %v beside %d slow readers", alone, beside, readers)
		if beside > 10*alone+500*time.Millisecond {
			t.Errorf("a command took %v beside slow readers, %v without", beside, alone)
		}
		h.ok("exec", name, "--", "true")
	})
}

// steady is what processes hold once that has hardly grown for a second.
func steady(held func() [2]int) (now [2]int) {
	const hardly = 1 << 20
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	now = held()
	for late := time.Now().Add(patience.For(10 * time.Second)); time.Now().Before(late); {
		<-tick.C
		before := now
		if now = held(); now[0]-before[0] < hardly && now[1]-before[1] < hardly {
			break
		}
	}
	return now
}

// median is what a small command takes, in the middle of a few.
func (h *home) median(t *testing.T, c *client.Client, name string) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 9 {
		var out bytes.Buffer
		start := time.Now()
		_, err := c.Exec(t.Context(), name, client.ExecOptions{Command: &guestv1.Command{Argv: []string{"echo", "on"}}, Stdout: &out})
		if err != nil || out.String() != "on\n" {
			t.Fatalf("a command beside others: %q, %v", out.String(), err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// rss is the resident memory of processes, in bytes.
func rss(pids []int) int {
	sum := 0
	for _, pid := range pids {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue // it is gone
		}
		if f := bytes.Fields(statm); len(f) > 1 {
			pages, _ := strconv.Atoi(string(f[1]))
			sum += pages * os.Getpagesize()
		}
	}
	return sum
}
