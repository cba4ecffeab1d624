package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
)

// boxClient connects to a runtime, as a platform does.
func boxClient(t *testing.T, addr string) *boxservice.Client {
	t.Helper()
	conn, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return conn.Client()
}

// sh runs a command, and wants it to end well.
func sh(t *testing.T, c *boxservice.Client, spec boxservice.Spec, cmd string) string {
	t.Helper()
	spec.Cmd = cmd
	res, err := c.Exec(t.Context(), spec)
	if err != nil {
		t.Fatalf("%s: %s: %v", spec.SessionID, cmd, err)
	}
	if res.ExitCode == nil || *res.ExitCode != 0 {
		t.Fatalf("%s: %s: %+v", spec.SessionID, cmd, res)
	}
	return res.Stdout
}

// A runtime that is killed has its sessions, their files and their processes
// again when it is started again; a reader of a process misses no line.
func TestBoxKilled(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newHome(t)
		c := boxClient(t, h.boxServe(wall, nil))
		for i := range 3 {
			sh(t, c, boxservice.NewSpec(fmt.Sprint("s", i), ""), fmt.Sprintf("echo kept %d > f", i))
		}
		count := `i=0; while read -r line; do i=$((i+1)); echo "$i $line"; done`
		if _, err := c.StartProcess(t.Context(), "s1", boxservice.ProcessSpec{ProcessID: "counter", Command: "sh", Args: []string{"-c", count}}); err != nil {
			t.Fatal(err)
		}
		n := 0
		talk := func(c *boxservice.Client, words ...string) {
			t.Helper()
			a, err := c.Attach(t.Context(), "s1", "counter")
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for _, w := range words {
				if err := a.WriteLine(t.Context(), []byte(w)); err != nil {
					t.Fatal(err)
				}
				n++
				if line, err := a.ReadLine(t.Context()); err != nil || string(line) != fmt.Sprintf("%d %s", n, w) {
					t.Fatalf("line %d is %q, %v", n, line, err)
				}
			}
		}
		talk(c, "one", "two")
		for range 2 {
			h.killDaemon()
			c = boxClient(t, h.boxServe(wall, nil))
			list, err := c.List(t.Context())
			if err != nil || len(list) != 3 {
				t.Fatalf("after the kill there are %d sessions, %v", len(list), err)
			}
			for i := range 3 {
				if got := sh(t, c, boxservice.NewSpec(fmt.Sprint("s", i), ""), "cat f"); got != fmt.Sprintf("kept %d\n", i) {
					t.Errorf("session %d has %q", i, got)
				}
			}
			talk(c, "again", "and again")
		}
		for i := range 3 {
			if err := c.Delete(t.Context(), fmt.Sprint("s", i)); err != nil {
				t.Error(err)
			}
		}
	})
}

// Two runtimes on one machine leave each other alone, though one reaps, ends, is
// killed and is started again.
func TestBoxTwoRuntimes(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		one, two := newHome(t), newHome(t)
		reaping := map[string]any{"session_ttl_sec": 1}
		c1, c2 := boxClient(t, one.boxServe(wall, reaping)), boxClient(t, two.boxServe(wall, nil))
		spec := boxservice.NewSpec("same", "")
		sh(t, c1, spec, "echo first > f")
		sh(t, c2, spec, "echo second > f")
		if _, err := c2.StartProcess(t.Context(), "same", boxservice.ProcessSpec{Command: "sleep", Args: []string{"1000"}}); err != nil {
			t.Fatal(err)
		}
		other := func(after string) {
			t.Helper()
			if got := sh(t, c2, spec, "cat f"); got != "second\n" {
				t.Errorf("after the first %s, the second has %q", after, got)
			}
			if p, err := c2.Process(t.Context(), "same", ""); err != nil || p.Status != sessions.ProcessRunning {
				t.Errorf("after the first %s, the second's process is %+v, %v", after, p, err)
			}
		}
		until(t, func() bool {
			list, err := c1.List(t.Context())
			return err == nil && len(list) == 0
		})
		other("reaped")
		for _, end := range []func(){one.killDaemon, func() { one.ok("daemon", "stop") }} {
			end()
			other("ended")
			c1 = boxClient(t, one.boxServe(wall, reaping))
			if got := sh(t, c1, spec, "cat f"); got != "first\n" {
				t.Errorf("the first has %q", got)
			}
			other("was started again")
		}
		if err := c1.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		other("dropped its sessions")
		if err := c2.Delete(t.Context(), "same"); err != nil {
			t.Error(err)
		}
	})
}

// A session's time to live passes while a command runs in it: the command ends
// well, and the session goes only once it is idle. What it had wakes again.
func TestBoxBusyIsNotIdle(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	c := boxClient(t, h.boxServe("process", map[string]any{"session_ttl_sec": 1}))
	spec := boxservice.NewSpec("busy", "")
	if got := sh(t, c, spec, "echo kept > f; sleep 4; echo done"); got != "done\n" {
		t.Errorf("the command wrote %q", got)
	}
	until(t, func() bool {
		list, err := c.List(t.Context())
		return err == nil && len(list) == 0
	})
	if got := sh(t, c, spec, "cat f"); got != "kept\n" {
		t.Errorf("what was asleep has %q", got)
	}
}

// A client that goes away in the middle of a command takes the command along,
// and nothing else.
func TestBoxClientVanishes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	addr := h.boxServe("process", nil)
	c := boxClient(t, addr)
	spec := boxservice.NewSpec("left", "")
	sh(t, c, spec, "true")
	ctx, vanish := context.WithCancel(t.Context())
	gone, err := boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Open(ctx); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		long := spec
		long.Cmd, long.TimeoutSec = "echo begun > begun; setsid sleep 4713 & sleep 4713", 600
		_, err := gone.Client().Exec(ctx, long)
		ended <- err
	}()
	until(t, func() bool { return len(pidsOf("sleep\x004713\x00")) == 2 })
	vanish()
	_ = gone.Close()
	if err := <-ended; err == nil {
		t.Error("the exec ended well")
	}
	until(t, func() bool { return len(pidsOf("sleep\x004713\x00")) == 0 })
	if got := sh(t, c, spec, "cat begun"); got != "begun\n" {
		t.Errorf("the session has %q", got)
	}
}

// pidsOf lists processes of the machine by their whole command line.
func pidsOf(cmdline string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == cmdline {
			pids = append(pids, f)
		}
	}
	return pids
}

// A workspace that is the host's has a soft quota: a command is stopped soon
// after it has passed it, and a session that is over it ends, as LangBot's do.
func TestBoxSoftQuota(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	root := filepath.Join(h.dir, "shared")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	c := boxClient(t, h.boxServe("process", map[string]any{"host_root": root}))
	spec := boxservice.NewSpec("soft", "")
	spec.HostPath, spec.WorkspaceQuotaMB = filepath.Join(root, "default"), 8
	sh(t, c, spec, "echo x > small")
	info, err := c.Get(t.Context(), "soft")
	if err != nil || info.Quota != sessions.QuotaSoft {
		t.Errorf("its quota is %q, %v", info.Quota, err)
	}
	begun := time.Now()
	endless := spec
	endless.Cmd, endless.TimeoutSec = "while :; do head -c 1000000 /dev/zero >> big; sleep 0.05; done", 60
	_, err = c.Exec(t.Context(), endless)
	if err == nil || !strings.Contains(err.Error(), "workspace quota exceeded after execution was stopped: used=") || boxservice.Class(err) != langbot.ClassValidation {
		t.Errorf("a command that passes the quota: %v", err)
	}
	if took := time.Since(begun); took > 50*time.Second {
		t.Errorf("it was not stopped: it ran for %v", took)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the session is still there: %v %v", list, err)
	}
	spec.Cmd = "true"
	if _, err := c.Exec(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "workspace quota exceeded before execution") {
		t.Errorf("a command in what is over it already: %v", err)
	}
	spec.Quota = sessions.QuotaHard
	if _, err := c.Exec(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "hard") {
		t.Errorf("a hard quota of the host's directory: %v", err)
	}
}

// A full disk of the daemon refuses what is new in words, and loses nothing.
func TestBoxDiskFull(t *testing.T) {
	t.Parallel()
	h := newSmallHome(t, "192m")
	c := boxClient(t, h.boxServe("process", nil))
	spec := boxservice.NewSpec("early", "")
	spec.WorkspaceQuotaMB = 16
	sh(t, c, spec, "echo kept > f")
	free := h.fill(0)
	late := boxservice.NewSpec("late", "true")
	late.WorkspaceQuotaMB = 16
	if _, err := c.Exec(t.Context(), late); err == nil || !strings.Contains(err.Error(), "space") && !strings.Contains(err.Error(), "full") {
		t.Errorf("a session on a full disk: %v", err)
	}
	if got := sh(t, c, spec, "cat f"); got != "kept\n" {
		t.Errorf("what was there has %q", got)
	}
	free()
	sh(t, c, late, "echo now > f")
	for _, id := range []string{"early", "late"} {
		if err := c.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

// A signal ends the runtime in order: sessions stay for the next one.
func TestBoxServeEnds(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	c := boxClient(t, h.boxServe("process", nil))
	sh(t, c, boxservice.NewSpec("stays", ""), "echo kept > f")
	pid := h.daemonPID()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return !alive(pid) })
	if out := h.ok("session", "exec", "--session", "stays", "--isolation", "process", "--", "cat", "f"); out != "kept\n" {
		t.Errorf("the session has %q", out)
	}
	h.ok("session", "rm", "stays")
}
