package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/api/tools"
	"github.com/carboy-sandbox/carboy/contrib/boxservice"
	"github.com/carboy-sandbox/carboy/test/long"
)

// newDiskHome is a home whose state is on a disk of its own: ext4 of size MiB
// with so many files.
func newDiskHome(t *testing.T, size, inodes int) *home {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a disk")
	}
	h := newHome(t)
	image := filepath.Join(t.TempDir(), "disk")
	state := h.dir + "/state"
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"mkfs.ext4", "-F", "-q", "-m", "0", "-N", fmt.Sprint(inodes), image, fmt.Sprint(size, "m")},
		{"mount", "-o", "loop", image, state},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.ext4 and loop devices: %q: %v\n%s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		for _, sb := range h.list() {
			h.run(nil, "rm", "-f", sb.Name)
		}
		h.run(nil, "daemon", "stop")
		h.showLog() // it goes with the disk
		until(t, func() bool { return !errors.Is(syscall.Unmount(state, 0), syscall.EBUSY) })
	})
	return h
}

// diskFull is what a user is told of a full disk, which is that of path.
func (h *home) diskFull(err error) string {
	if err == nil {
		return "it went well"
	}
	if !strings.Contains(err.Error(), "the disk of "+h.dir+"/state/carboy") || !strings.Contains(err.Error(), "is full") {
		return err.Error()
	}
	return ""
}

// fullWorld is a runtime whose disk is full.
type fullWorld struct {
	*home
	c     *boxservice.Client
	early boxservice.Spec // a session from before
	skill boxservice.Mount
}

func newFullWorld(t *testing.T, wall string, size, inodes int) *fullWorld {
	t.Helper()
	h := newDiskHome(t, size, inodes)
	w := &fullWorld{home: h, c: boxClient(t, h.boxServe(wall, map[string]any{"session_ttl_sec": 2}))}
	w.early = boxservice.NewSpec("early", "")
	w.early.Persistent = true
	sh(t, w.c, w.early, "echo kept > f")
	for _, id := range []string{"idle", "gone"} {
		sh(t, w.c, boxservice.NewSpec(id, ""), "echo kept > f")
		if id == "gone" {
			continue
		}
		if _, err := w.c.StartProcess(t.Context(), id, boxservice.ProcessSpec{Command: "cat"}); err != nil { // it can't fall asleep
			t.Fatal(err)
		}
	}
	talker := boxservice.ProcessSpec{ProcessID: "talker", Command: "sh", Args: []string{"-c", "read x; head -c 5000000 /dev/zero | tr '\\0' a; echo; cat"}}
	for _, p := range []boxservice.ProcessSpec{talker, {ProcessID: "other", Command: "cat"}} {
		if _, err := w.c.StartProcess(t.Context(), "early", p); err != nil {
			t.Fatal(err)
		}
	}
	skills, err := w.c.InstallZip(t.Context(), boxservice.Zip{Content: skillZip(t, "demo"), Filename: "pack.zip", SourcePaths: []string{"demo"}})
	if err != nil || len(skills) != 1 {
		t.Fatal(skills, err)
	}
	w.skill = boxservice.Mount{HostPath: skills[0].PackageRoot, MountPath: "/workspace/.skills/demo", Mode: "rw"}
	return w
}

// refused are the steps that need room, or files where those are few. Each says
// that there is none, and where.
func (w *fullWorld) refused(t *testing.T, few bool) {
	t.Helper()
	ctx := t.Context()
	zip := boxservice.Zip{Content: skillZip(t, "other"), Filename: "other.zip", SourcePaths: []string{"other"}}
	type step struct {
		name string
		do   func() error
	}
	steps := []step{
		{"create a session", func() error { _, err := w.c.Create(ctx, boxservice.NewSpec("late", "")); return err }},
		{"run the first command of one", func() error { _, err := w.c.Exec(ctx, boxservice.NewSpec("late", "true")); return err }},
		{"start a process", func() error {
			_, err := w.c.StartProcess(ctx, "early", boxservice.ProcessSpec{ProcessID: "late", Command: "cat"})
			return err
		}},
		{"make a skill", func() error { _, err := w.c.CreateSkill(ctx, sessions.SkillInput{Name: "fresh"}); return err }},
		{"write a skill", func() error {
			_, err := w.c.WriteSkill(ctx, "demo", "SKILL.md", "---\nname: demo\n---\nchanged\n")
			return err
		}},
		{"look at an archive", func() error { _, err := w.c.PreviewZip(ctx, zip); return err }},
		{"install an archive", func() error { _, err := w.c.InstallZip(ctx, zip); return err }},
	}
	if few { // of which one that is warm has them all
		steps = steps[2:]
	}
	for _, step := range steps {
		if !few {
			w.fillAgain()
		}
		if wrong := w.diskFull(step.do()); wrong != "" {
			t.Errorf("%s on a full disk: %s", step.name, wrong)
		}
	}
}

// goesOn are the steps that need none.
func (w *fullWorld) goesOn(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	if got := sh(t, w.c, w.early, "cat f"); got != "kept\n" {
		t.Errorf("a file is %q", got)
	}
	if got := sh(t, w.c, w.early, "head -c 1000000 /dev/zero | tr '\\0' a"); len(got) != 1_000_000 {
		t.Errorf("1 MB of output is %d bytes", len(got))
	}
	a, err := w.c.Attach(ctx, "early", "talker")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{5_000_000, len("next")} { // the first is longer than what the sandbox keeps
		if err := a.WriteLine(ctx, []byte("next")); err != nil {
			t.Error(err)
		}
		if line, err := a.ReadLine(ctx); err != nil || len(line) != want {
			t.Errorf("a line of %d bytes is one of %d, %v", want, len(line), err)
		}
	}
	a.Close()
	if err := w.c.StopProcess(ctx, "early", "other"); err != nil {
		t.Errorf("stop a process: %v", err)
	}
	if k, err := w.c.ReadSkill(ctx, "demo", "SKILL.md"); err != nil || !strings.Contains(k.Content, "use demo") {
		t.Errorf("the skill has %q, %v", k.Content, err)
	}
	api := w.api()
	in := tools.AttachmentsIn{QueryID: "q", Files: []tools.Attachment{{Name: "a.png", Data: bytes.Repeat([]byte("x"), 64<<10)}}}
	if out, err := api.Deliver(ctx, "early", in); err != nil || len(out.Attachments) != 1 {
		t.Errorf("deliver: %+v, %v", out, err)
	}
	if out, err := api.Collect(ctx, "early", "q"); err != nil || len(out.Attachments) != 0 {
		t.Errorf("collect: %+v, %v", out, err)
	}
	if out, err := api.SessionRead(ctx, "early", tools.ReadRequest{Path: "f"}); err != nil || out.Content != "kept" {
		t.Errorf("read: %+v, %v", out, err)
	}
}

// restarted ends the daemon, by kill or in order, and starts it again: on a full
// disk, with which a daemon that could not start would leave nobody to make room.
func (w *fullWorld) restarted(t *testing.T, kill bool) {
	t.Helper()
	if kill {
		w.killDaemon()
	} else {
		w.ok("daemon", "stop")
	}
	out := w.ok("session", "ls")
	for _, id := range []string{"early", "idle"} {
		if !strings.Contains(out, id) {
			t.Errorf("killed %v: there is no %s among\n%s", kill, id, out)
		}
	}
}

// A disk of the daemon's that is full is said to be, by its name, to whatever
// needs room; all else goes on, sessions are deleted, the daemon starts again,
// and nothing is lost of what was written before.
func TestBoxFullDisk(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		w := newFullWorld(t, wall, 256, 8192)
		// What falls asleep gives room back.
		until(t, func() bool {
			gone, err := w.c.Get(t.Context(), "gone")
			return err == nil && gone.Asleep
		})
		free := w.fill(0)
		w.refused(t, false)
		w.goesOn(t)
		if err := w.c.Delete(t.Context(), "gone"); err != nil {
			t.Errorf("delete a session: %v", err)
		}
		if err := w.c.DeleteSkill(t.Context(), "demo"); err != nil {
			t.Errorf("delete a skill: %v", err)
		}
		full := w.fillMore()
		w.restarted(t, false)
		full()
		full = w.fillMore()
		w.restarted(t, true)
		w.ok("session", "rm", "early")
		free()
		full()
		w.wellAfter(t, wall)
	})
}

// fillMore takes what room there is by now.
func (w *fullWorld) fillMore() (free func()) {
	more := filepath.Join(w.dir, "state", "more")
	err := os.WriteFile(more, make([]byte, 64<<20), 0o600)
	if !errors.Is(err, syscall.ENOSPC) {
		w.t.Errorf("fill the disk: %v", err)
	}
	return func() { _ = os.Remove(more) }
}

// wellAfter looks at what there is with room again.
func (w *fullWorld) wellAfter(t *testing.T, wall string) {
	t.Helper()
	for _, id := range []string{"idle", "late"} {
		want := map[string]string{"idle": "kept\n"}[id]
		if out := w.ok("session", "exec", "--session", id, "--isolation", wall, "--", "cat f 2>/dev/null || true"); out != want {
			t.Errorf("%s has %q, want %q", id, out, want)
		}
		w.ok("session", "rm", id)
	}
	if out := w.ok("session", "ls", "--json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("there are these sessions: %s", out)
	}
	log, err := os.ReadFile(filepath.Join(w.dir, "state/carboy/audit/sessions.jsonl"))
	if err != nil {
		t.Error(err)
	}
	whole := 0
	for line := range strings.Lines(string(log)) {
		if json.Valid([]byte(line)) {
			whole++
		}
	}
	if torn := strings.Count(string(log), "\n") - whole; torn > 1 || whole < 4 {
		t.Errorf("of the record of sessions %d lines are whole, %d torn", whole, torn)
	}
}

// A disk that can have no more files is one that is full.
func TestBoxNoFiles(t *testing.T) {
	long.Only(t, "a disk of many files")
	w := newFullWorld(t, "process", 256, 1024)
	dir := filepath.Join(w.dir, "state", "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	for n := 0; err == nil && n < 10_000; n++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	w.refused(t, true)
	w.goesOn(t)
	if err := w.c.Delete(t.Context(), "gone"); err != nil {
		t.Errorf("delete a session: %v", err)
	}
	w.restarted(t, false)
	w.restarted(t, true)
	w.ok("session", "rm", "early")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.wellAfter(t, "process")
}
