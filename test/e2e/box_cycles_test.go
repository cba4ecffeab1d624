package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// Sessions that come, work and go leave nothing of any kind.
func TestBoxCycles(t *testing.T) {
	n := cycles(t)
	behindEach(t, func(t *testing.T, wall string) {
		w := newBoxWorld(t, wall, map[string]any{"pool": 0})
		w.exec(t, "kept", "echo kept > f")
		cycle := func(n int) {
			for i := range n {
				id := fmt.Sprint("cycle-", i)
				spec := boxservice.NewSpec(id, "echo x > f; (sleep 1000 &)")
				if i%3 == 0 {
					spec.HostPath = w.dirs(t, "shared")[0]
				}
				if _, err := w.client.Exec(t.Context(), spec); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					if _, err := w.client.StartProcess(t.Context(), id, boxservice.ProcessSpec{Command: "cat"}); err != nil {
						t.Fatal(err)
					}
					a, err := w.client.Attach(t.Context(), id, "")
					if err != nil {
						t.Fatal(err)
					}
					if err := a.WriteLine(t.Context(), []byte("x")); err != nil {
						t.Fatal(err)
					}
					if _, err := a.ReadLine(t.Context()); err != nil {
						t.Fatal(err)
					}
					_ = a.Close()
				}
				if err := w.client.Delete(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		cycle(6) // what the first ones make is kept for all
		before := w.counts()
		begun := time.Now()
		cycle(n)
		t.Logf("%d cycles behind %s: %v each", n, wall, time.Since(begun)/time.Duration(n))
		after := w.settled(before)
		for _, what := range slices.Sorted(maps.Keys(before)) {
			t.Logf("%-20s %5d before %5d after", what, before[what], after[what])
			if after[what] > before[what] {
				t.Errorf("%s: %d before, %d after %d cycles", what, before[what], after[what], n)
			}
		}
		if got := w.exec(t, "kept", "cat f"); got != "kept\n" {
			t.Errorf("the one that stays has %q", got)
		}
	})
}

// pidsWith lists the processes of the machine whose command line has a text.
func pidsWith(text string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(text)) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// A session whose sandbox is killed from outside says so, ends its process and
// its reader, and has another sandbox at its next command.
func TestBoxSandboxKilled(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newBoxWorld(t, wall, nil)
		w.exec(t, "hit", "echo x > f")
		w.exec(t, "other", "echo other > f")
		if _, err := w.client.StartProcess(t.Context(), "hit", boxservice.ProcessSpec{Command: "cat"}); err != nil {
			t.Fatal(err)
		}
		a, err := w.client.Attach(t.Context(), "hit", "")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		pids := pidsWith(w.sessions(t)["hit"].BackendSessionID)
		if len(pids) == 0 {
			t.Fatal("its processes are not found")
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		soon, cancel := context.WithTimeout(t.Context(), patience.For(20*time.Second))
		defer cancel()
		if line, err := a.ReadLine(soon); err == nil || soon.Err() != nil {
			t.Errorf("its reader got %q, %v", line, err)
		} else if errors.Is(err, io.EOF) {
			t.Log("the relay was closed in order")
		}
		r, err := w.client.Exec(t.Context(), boxservice.NewSpec("hit", "echo again"))
		if err != nil || r.Stdout != "again\n" || len(r.Notices) == 0 {
			t.Errorf("its next command: %+v, %v", r, err)
		}
		t.Logf("notices: %q", r.Notices)
		if p, err := w.client.Process(t.Context(), "hit", ""); err == nil && p.Status != sessions.ProcessExited {
			t.Errorf("its process: %+v", p)
		}
		if got := w.exec(t, "other", "cat f"); got != "other\n" {
			t.Errorf("the other one has %q", got)
		}
	})
}

// A session whose sandbox stands still is given up in a while, in words, and no
// other waits for it; nor does a runtime that is started meanwhile.
func TestBoxSandboxStopped(t *testing.T) {
	t.Parallel()
	long.Only(t, "it takes half a minute")
	const silence = 15
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		w := newBoxWorld(t, wall, map[string]any{"silence_sec": silence})
		w.exec(t, "still", "true")
		w.exec(t, "other", "echo other > f")
		pids := pidsWith(w.sessions(t)["still"].BackendSessionID)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		t.Cleanup(func() {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			spec := boxservice.NewSpec("still", "true")
			spec.TimeoutSec = 1
			begun := time.Now()
			r, err := w.client.Exec(t.Context(), spec)
			t.Logf("after %v: %+v, %v", time.Since(begun), r, err)
			if err == nil || time.Since(begun) > 5*(1+silence)*time.Second {
				t.Errorf("it ended after %v with %+v, %v", time.Since(begun), r, err)
			}
		}()
		for range 5 {
			if got := w.exec(t, "other", "cat f"); got != "other\n" {
				t.Errorf("the other one has %q", got)
			}
		}
		select {
		case <-ended:
			t.Error("the other one waited for the one that is silent")
		default:
		}
		<-ended
		for _, pid := range pidsWith(w.sessions(t)["still"].BackendSessionID) {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
		w.kill()
		begun := time.Now()
		w.serve()
		t.Logf("started again after %v", time.Since(begun))
		c := w.connect(t, boxservice.Options{})
		begun = time.Now()
		r, err := c.Client().Exec(t.Context(), boxservice.NewSpec("other", "cat f"))
		t.Logf("the other one had its answer after %v", time.Since(begun))
		if err != nil || r.Stdout != "other\n" {
			t.Errorf("the other one, afterwards: %+v, %v", r, err)
		}
		until(t, func() bool { return w.client.Ping(t.Context()) == nil })
	})
}

// What the daemon takes for many sessions, and how soon it has them again.
func TestBoxMeasure(t *testing.T) {
	long.Only(t, "it makes hundreds of sessions")
	w := newBoxWorld(t, "process", nil)
	rss := func(what string) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.daemon.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") || strings.HasPrefix(line, "Threads") {
				t.Logf("%s: %s", what, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	each := func(f func(id string)) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() { f(fmt.Sprint("s", i)) })
		}
		wg.Wait()
	}
	run := func(c *boxservice.Client, cmd string) func(string) {
		return func(id string) {
			spec := boxservice.NewSpec(id, cmd)
			spec.TimeoutSec, spec.MemoryMB = 120, 64
			if r, err := c.Exec(t.Context(), spec); err != nil || r.ExitCode == nil || *r.ExitCode != 0 {
				t.Errorf("%s: %s: %v", id, cmd, err)
			}
		}
	}
	rss("no session")
	each(run(w.client, "true"))
	rss("64 sessions")
	each(run(w.client, "head -c 1048576 /dev/zero | tr '\\0' x"))
	rss("64 sessions, after 1 MiB of output of each at once")
	each(func(id string) {
		if _, err := w.client.StartProcess(t.Context(), id, boxservice.ProcessSpec{Command: "cat"}); err != nil {
			t.Error(err)
		}
	})
	rss("64 sessions with a process each")
	w.kill()
	begun := time.Now()
	w.serve()
	t.Logf("it answers again after %v", time.Since(begun))
	c := w.connect(t, boxservice.Options{}).Client()
	list, err := c.List(t.Context())
	if err != nil || len(list) != 64 {
		t.Errorf("there are %d sessions, %v", len(list), err)
	}
	t.Logf("it has its sessions after %v", time.Since(begun))
	each(func(id string) {
		if p, err := c.Process(t.Context(), id, ""); err != nil || p.Status != sessions.ProcessRunning {
			t.Errorf("its process: %+v, %v", p, err)
		}
	})
	each(run(c, "true"))
	t.Logf("and an answer of each after %v", time.Since(begun))
	rss("64 sessions with a process each, started again")
	until(t, func() bool { return w.client.Ping(t.Context()) == nil })
}
