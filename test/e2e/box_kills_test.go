package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/long"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// step is something that a session does, in the middle of which the runtime is
// killed.
type step struct {
	name string
	// before prepares for it, and do does it; what becomes of do is nobody's to
	// know.
	before func(*testing.T, *boxWorld)
	do     func(context.Context, *boxservice.Client)
	late   time.Duration // when it begins
	lasts  bool          // the files of the session are there afterwards
}

func victim(cmd string) boxservice.Spec {
	spec := boxservice.NewSpec("victim", cmd)
	spec.TimeoutSec = 5
	return spec
}

func steps(skills []boxservice.Mount) []step {
	has := func(t *testing.T, w *boxWorld) { w.exec(t, "victim", "echo had > had") }
	cat := boxservice.ProcessSpec{ProcessID: "p", Command: "cat"}
	runs := func(t *testing.T, w *boxWorld) {
		has(t, w)
		if _, err := w.client.StartProcess(t.Context(), "victim", cat); err != nil {
			t.Fatal(err)
		}
	}
	skilled := victim("cd /workspace/.skills/demo && echo 'use it twice' >> SKILL.md")
	skilled.ExtraMounts = skills
	return []step{
		{name: "create", do: func(ctx context.Context, c *boxservice.Client) { _, _ = c.Create(ctx, victim("")) }},
		{name: "exec", before: has, lasts: true, do: func(ctx context.Context, c *boxservice.Client) {
			_, _ = c.Exec(ctx, victim("echo x > x; sleep 0.2; echo y > y"))
		}},
		{name: "start a process", before: has, lasts: true, do: func(ctx context.Context, c *boxservice.Client) { _, _ = c.StartProcess(ctx, "victim", cat) }},
		{name: "replace a process", before: runs, lasts: true, do: func(ctx context.Context, c *boxservice.Client) { _, _ = c.StartProcess(ctx, "victim", cat) }},
		{name: "stop a process", before: runs, lasts: true, do: func(ctx context.Context, c *boxservice.Client) { _ = c.StopProcess(ctx, "victim", "p") }},
		{name: "delete", before: runs, do: func(ctx context.Context, c *boxservice.Client) { _ = c.Delete(ctx, "victim") }},
		{name: "take a skill back", before: has, lasts: true, do: func(ctx context.Context, c *boxservice.Client) { _, _ = c.Exec(ctx, skilled) }},
		{name: "fall asleep", before: has, lasts: true, late: 950 * time.Millisecond, do: func(context.Context, *boxservice.Client) {}},
		{name: "wake", lasts: true, before: func(t *testing.T, w *boxWorld) {
			has(t, w)
			until(t, func() bool { _, there := w.sessions(t)["victim"]; return !there })
		}, do: func(ctx context.Context, c *boxservice.Client) { _, _ = c.Exec(ctx, victim("true")) }},
	}
}

// A runtime that is killed in the middle of anything leaves nothing behind when
// it is started again: each sandbox is a session's, no file of one is lost, and
// what was not finished can be done again.
func TestBoxKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		var w *boxWorld
		t.Cleanup(func() { // once all else has ended
			if w != nil {
				_ = w.conn.Close()
			}
		})
		w = newBoxWorld(t, wall, map[string]any{"session_ttl_sec": 1})
		t.Cleanup(func() {
			if log, err := os.ReadFile(filepath.Join(w.dir, "serve.log")); t.Failed() && err == nil {
				t.Logf("serve.log:\n%s", tail(log, 4000))
			}
		})
		w.exec(t, "kept", "echo kept > f")
		pack := boxservice.Zip{Content: skillZip(t, "demo"), Filename: "pack.zip", SourcePaths: []string{"demo"}}
		skills, err := w.client.InstallZip(t.Context(), pack)
		if err != nil || len(skills) != 1 {
			t.Fatal(skills, err)
		}
		mounts := []boxservice.Mount{{HostPath: skills[0].PackageRoot, MountPath: "/workspace/.skills/demo", Mode: "rw"}}
		entries := w.kept(t)
		all, moments := steps(mounts), long.Moments(2, 16, 20*time.Millisecond)
		if !long.On() {
			all, moments = all[:7], []time.Duration{15 * time.Millisecond, 60 * time.Millisecond}
			if wall != "process" { // whose start is the quicker one
				moments = moments[1:]
			}
		}
		for _, s := range all {
			for _, at := range moments {
				w.killedAt(t, s, at)
				if t.Failed() {
					t.Fatalf("it was killed %v after it had begun to %s", at, s.name)
				}
				w.untilKept(t, s.name, entries)
			}
		}
	})
}

// kept lists what the runtime has on the disk for its skills and processes.
func (w *boxWorld) kept(t *testing.T) (paths []string) {
	t.Helper()
	dir := filepath.Join(w.dir, "state", "carboy", "box")
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func (w *boxWorld) untilKept(t *testing.T, doing string, want []string) {
	t.Helper()
	if !patience.Until(15*time.Second, func() bool { return slices.Equal(w.kept(t), want) }) {
		t.Fatalf("killed while it was about to %s, it has on the disk\n%s\nand should have\n%s", doing, strings.Join(w.kept(t), "\n"), strings.Join(want, "\n"))
	}
}

// killedAt kills the runtime in the middle of a step, starts it again and looks
// at what there is.
func (w *boxWorld) killedAt(t *testing.T, s step, at time.Duration) {
	t.Helper()
	if s.before != nil {
		s.before(t, w)
	}
	<-time.After(s.late)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.do(ctx, w.client)
	}()
	<-time.After(at)
	w.kill()
	cancel()
	<-done
	begun := time.Now()
	w.serve()
	if took := time.Since(begun); took > patience.For(30*time.Second) {
		t.Errorf("it took %v to start again", took)
	}
	// One that had been connected often would wait for longer each time.
	_ = w.conn.Close()
	var err error
	if w.conn, err = boxservice.NewConnector(boxservice.Options{Endpoint: "ws://" + w.addr}); err != nil {
		t.Fatal(err)
	}
	if err := w.conn.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.client = w.conn.Client()
	if got := w.exec(t, "kept", "cat f"); got != "kept\n" {
		t.Errorf("another session has %q", got)
	}
	if got := w.exec(t, "victim", "cat had 2>/dev/null || true"); s.lasts && got != "had\n" {
		t.Errorf("its file has %q", got)
	}
	if _, err := w.client.StartProcess(t.Context(), "victim", boxservice.ProcessSpec{ProcessID: "p", Command: "cat"}); err != nil {
		t.Errorf("its process: %v", err)
	}
	if got := w.exec(t, "victim", "grep -lsx cat /proc/[0-9]*/comm | wc -l"); got != "1\n" {
		t.Errorf("it has %q such processes", got)
	}
	k, err := w.client.ReadSkill(t.Context(), "demo", "SKILL.md")
	if text := k.Content; err != nil || !strings.Contains(text, "use demo\n") || !strings.HasSuffix(text, "\n") {
		t.Errorf("the skill has %q, %v", text, err)
	}
	if err := w.client.Delete(t.Context(), "victim"); err != nil && !errors.Is(err, boxservice.ErrNotFound) {
		t.Error(err)
	}
	if list := w.list(); len(list) != 1 {
		t.Errorf("there are these sandboxes: %+v", list)
	}
}
