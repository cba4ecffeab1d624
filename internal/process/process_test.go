package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/sessions"
	"github.com/carboy-sandbox/carboy/internal/process"
)

func TestInfo(t *testing.T) {
	s := newSandbox(t)
	spec := sh(`printf '%s\nfine\n' "$SECRET"; cat; exit 3`) // both at one stroke
	spec.ProcessID, spec.Env = "mcp", map[string]string{"SECRET": "hunter2", "B": "", "A": "x"}
	o := s.options(spec)
	exits := make(chan sessions.ProcessInfo, 2)
	o.OnExit = func(i sessions.ProcessInfo) { exits <- i }
	p := s.start(o)

	got := p.Info()
	if got.StartedAt.IsZero() {
		t.Error("it has no start")
	}
	got.StartedAt = time.Time{}
	want := sessions.ProcessInfo{
		SessionID: "person_alice", ProcessID: "mcp", Status: sessions.ProcessRunning, Command: "sh",
		Args: spec.Args, Cwd: "/tmp", EnvKeys: []string{"A", "B", "SECRET"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	rec, err := json.Marshal(p.Record())
	if err != nil || bytes.Contains(rec, []byte("hunter2")) {
		t.Errorf("the record: %s, %v", rec, err)
	}
	a := attach(t, p)
	if got := line(t, a); got != "hunter2" {
		t.Errorf("inside the variable is %q", got)
	}
	if !p.Info().Attached {
		t.Error("it is not known to be attached")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := <-exits; i.Status != sessions.ProcessExited || i.ExitedAt == nil || i.ExitCode == nil {
		t.Errorf("after its end: %+v", i)
	}
	if got := line(t, a); got != "fine" {
		t.Errorf("of the stopped one: %q", got)
	}
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
	if err := a.WriteLine(t.Context(), []byte("x")); !errors.Is(err, process.ErrEnded) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write to one that has ended: %v", err)
	}
	if n := p.Info().Notices; len(n) > 0 {
		t.Errorf("of its input: %q", n)
	}
}

// One that has closed its input is still there to be read.
func TestInputThatIsNotRead(t *testing.T) {
	s := newSandbox(t)
	spec := sh("exec 0<&-; echo up; while ! [ -e go ]; do sleep 0.05; done; echo down")
	spec.Cwd = open(t)
	p := s.start(s.options(spec))
	a := attach(t, p)
	if got := line(t, a); got != "up" {
		t.Errorf("read %q", got)
	}
	for range 2 {
		if err := a.WriteLine(t.Context(), []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write: %v", err)
		}
	}
	if n := p.Info().Notices; len(n) != 1 || !strings.Contains(n[0], "reads no more") {
		t.Errorf("it is said: %q", n)
	}
	if err := os.WriteFile(spec.Cwd+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := line(t, a); got != "down" {
		t.Errorf("read %q", got)
	}
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("after the last line: %v", err)
	}
}

func TestRefusedSpecs(t *testing.T) {
	for name, spec := range map[string]sessions.ProcessSpec{
		"no-command":      {Command: "  "},
		"relative-cwd":    {Command: "true", Cwd: "here"},
		"negative-memory": {Command: "true", MemoryMB: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := process.Start(t.Context(), process.Options{Spec: spec}); err == nil {
				t.Error("it was started")
			}
		})
	}
}

func TestNoSuchProgram(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sessions.ProcessSpec{Command: "no-such-program"}))
	i := p.Info()
	if i.Status != sessions.ProcessExited || i.ExitCode == nil || *i.ExitCode != 127 || !strings.Contains(i.StderrPreview, "no-such-program") {
		t.Errorf("%+v", i)
	}
	if _, err := p.Attach(t.Context()); !errors.Is(err, process.ErrEnded) {
		t.Errorf("attach: %v", err)
	}
}

func TestDirectoryIsMade(t *testing.T) {
	s := newSandbox(t)
	dir := open(t)
	spec := sh("pwd")
	spec.Cwd = dir + "/a b/c"
	if got := line(t, attach(t, s.start(s.options(spec)))); got != spec.Cwd {
		t.Errorf("it runs in %q", got)
	}
}

// open makes a directory that everybody may write to.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "carboy-process-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// What a process leaves behind that forks twice and leads a session of its
// own is ended with it, and nothing else is.
func TestStopKillsTheWholeTree(t *testing.T) {
	s := newSandbox(t)
	mark := fmt.Sprintf("31%d", os.Getpid())
	other := s.start(s.options(sessions.ProcessSpec{Command: "sleep", Args: []string{mark + "9"}}))
	o := s.options(sh("trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep " + mark + " & wait' &) ; echo up; while :; do sleep 1; done"))
	o.Grace = time.Second
	p := s.start(o)
	if got := line(t, attach(t, p)); got != "up" {
		t.Fatal(got)
	}
	eventually(t, "the grandchild runs", func() bool { return running(t, mark) == 1 })
	begin := time.Now()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < o.Grace {
		t.Errorf("one that ignores the request was killed after %v", took)
	}
	if n := running(t, mark); n != 0 {
		t.Errorf("%d of its children live", n)
	}
	if !other.Running() || running(t, mark+"9") != 1 {
		t.Error("another was ended with it")
	}
}

func TestStopIsGraceful(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done")))
	a := attach(t, p)
	line(t, a)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if i := p.Info(); i.ExitCode == nil || *i.ExitCode != 7 {
		t.Errorf("%+v", i)
	}
	if got := line(t, a); got != "bye" {
		t.Errorf("its last line: %q", got)
	}
}

// running counts the processes of a command `sleep n`.
func running(t *testing.T, n string) (count int) {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if b, err := os.ReadFile("/proc/" + d.Name() + "/cmdline"); err == nil && string(b) == "sleep\x00"+n+"\x00" {
			count++
		}
	}
	return count
}

func TestExitWhileNobodyIsAttached(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("echo one; echo two; printf three; exit 5")))
	ended(t, p)
	if i := p.Info(); i.Status != sessions.ProcessExited || *i.ExitCode != 5 || i.Attached {
		t.Errorf("%+v", i)
	}
	a := attach(t, p)
	if got := line(t, a); got != "one" {
		t.Error(got)
	}
	_ = a.Close()
	a = attach(t, p)
	for _, want := range []string{"two", "three"} {
		if got := line(t, a); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := p.Attach(t.Context()); !errors.Is(err, process.ErrEnded) {
		t.Errorf("attach after all was read: %v", err)
	}
}

func TestStderrPreview(t *testing.T) {
	s := newSandbox(t)
	// Nobody reads its output, which fills up; its errors go on.
	p := s.start(s.options(sh("yes >&1 & i=0; while [ $i -lt 3000 ]; do echo \"línea $i\" >&2; i=$((i+1)); done; echo last >&2; wait")))
	eventually(t, "the newest errors are shown", func() bool { return strings.HasSuffix(p.Info().StderrPreview, "last") })
	got := []rune(p.Info().StderrPreview)
	if len(got) > process.PreviewLimit || len(got) < process.PreviewLimit-1 || strings.ContainsRune(string(got), '\uFFFD') {
		t.Errorf("%d characters of at most %d: %.40q", len(got), process.PreviewLimit, string(got))
	}
}

// A process that nobody reads is held back; what it wrote is not in memory
// here, and arrives whole once it is read.
func TestBackPressure(t *testing.T) {
	s := newSandbox(t)
	dir := open(t)
	spec := sh("i=0; while [ $i -lt 400 ]; do head -c 16383 /dev/zero | tr '\\0' x; echo; i=$((i+1)); echo $i >" + dir + "/count; done")
	p := s.start(s.options(spec))
	a := attach(t, p)
	if got := line(t, a); len(got) != 16383 {
		t.Fatalf("a line of %d", len(got))
	}
	count := func() (n int) {
		b, _ := os.ReadFile(dir + "/count")
		_, _ = fmt.Sscan(string(b), &n)
		return n
	}
	last, since := 0, time.Now()
	eventually(t, "the process waits", func() bool {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
		return last > 0 && time.Since(since) > 300*time.Millisecond
	})
	// 1 MiB in the sandbox, a pipe, and at most a piece here.
	if most := (1<<20+64<<10+process.MaxRead)/(16<<10) + 4; last > most {
		t.Errorf("it wrote %d lines that nobody read, of at most %d", last, most)
	}
	for range 399 {
		if got := line(t, a); len(got) != 16383 {
			t.Fatalf("a line of %d", len(got))
		}
	}
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestInputBackPressure(t *testing.T) {
	s := newSandbox(t)
	mark := fmt.Sprintf("32%d", os.Getpid())
	p := s.start(s.options(sh("kill -STOP $$; exec cat # " + mark)))
	a := attach(t, p)
	big := strings.Repeat("y", 1<<20)
	writeStuck(t, a, mark, []byte(big))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.WriteLine(ctx, []byte("not begun")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("behind one that is not written: %v", err)
	}
	if err := s.signal(p, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	write(t, a, "next")
	if got := line(t, a); got != big {
		t.Errorf("the line that was begun: %d bytes, want %d", len(got), len(big))
	}
	if got := line(t, a); got != "next" {
		t.Errorf("after it: %.20q", got)
	}
}

// writeStuck begins to write what is longer than a pipe to a process that
// stops itself, and gives up once it has stopped and its pipe is full.
func writeStuck(t *testing.T, a *process.Attachment, mark string, line []byte) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan error, 1)
	go func() { wrote <- a.WriteLine(ctx, line) }()
	eventually(t, "the process has stopped, and its input is full", func() bool { return stuck(t, mark) })
	cancel()
	if err := <-wrote; !errors.Is(err, context.Canceled) {
		t.Fatalf("a process that does not read: %v", err)
	}
}

// stuck is whether the process whose command line ends in mark has stopped
// while its input is full.
func stuck(t *testing.T, mark string) bool {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		at := "/proc/" + d.Name()
		b, _ := os.ReadFile(at + "/cmdline")
		if !strings.HasSuffix(string(b), mark+"\x00") {
			continue
		}
		stat, _ := os.ReadFile(at + "/stat")
		in, err := os.OpenFile(at+"/fd/0", os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		defer in.Close()
		holds, err := unix.IoctlGetInt(int(in.Fd()), unix.TIOCINQ)
		size, err2 := unix.FcntlInt(in.Fd(), unix.F_GETPIPE_SZ, 0)
		return errors.Join(err, err2) == nil && holds == size && strings.Contains(string(stat), ") T ")
	}
	return false
}

func (s *sandbox) signal(p *process.Process, sig unix.Signal) error {
	c, err := s.engine.Get(p.Record().Command)
	if err != nil {
		return err
	}
	return c.Signal(sig, true, "test")
}

func TestLongLines(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh(fmt.Sprintf(
		"x() { head -c $1 /dev/zero | tr '\\0' $2; echo; }; x %d a; x %d b; x 3 c; x %d d; echo end",
		process.MaxLine, process.MaxLine+1, 2*process.MaxLine))))
	a := attach(t, p)
	if got := line(t, a); got != strings.Repeat("a", process.MaxLine) {
		t.Errorf("the longest line has %d bytes", len(got))
	}
	for _, want := range []string{"", "ccc", "", "end"} {
		b, err := a.ReadLine(t.Context())
		if _, long := errors.AsType[*process.TooLongError](err); long != (want == "") || string(b) != want {
			t.Errorf("%q, %v, want %q", b, err, want)
		}
	}
	if _, err := a.ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestOnUseIsCalledNowAndThen(t *testing.T) {
	s := newSandbox(t)
	o := s.options(sh("cat"))
	begin := time.Now()
	var uses atomic.Int64
	o.OnUse = func() { uses.Add(1) }
	a := attach(t, s.start(o))
	for range 100 {
		write(t, a, "x")
		line(t, a)
	}
	if n, most := uses.Load(), 1+int64(time.Since(begin)/time.Second); n < 1 || n > most {
		t.Errorf("%d calls, of at most %d", n, most)
	}
}

// A process may run for as long as it likes, followed or not.
func TestNoTimeLimit(t *testing.T) {
	s := newSandbox(t)
	p := s.start(s.options(sh("exec cat")))
	c, err := s.engine.Get(p.Record().Command)
	if err != nil {
		t.Fatal(err)
	}
	if spec := c.Spec(); spec.Timeout != 0 || spec.OrphanGrace < 100*365*24*time.Hour {
		t.Errorf("it ends after %v, and without a reader after %v", spec.Timeout, spec.OrphanGrace)
	}
}

// A process has a limit of memory of its own: all that it started ends, and
// nothing else.
func TestMemoryOfItsOwn(t *testing.T) {
	s := newSandbox(t)
	other := s.start(s.options(sh("exec cat")))
	spec := sh("tail /dev/zero & wait; echo survived; exec sleep 1000")
	spec.MemoryMB = 64
	p := s.start(s.options(spec))
	if n := p.Info().Notices; len(n) != 1 || !strings.Contains(n[0], "memory_mb 64") {
		t.Errorf("%q", n)
	}
	ended(t, p)
	if i := p.Info(); i.ExitCode == nil || *i.ExitCode != 137 {
		t.Errorf("%+v", i)
	}
	if l, err := attach(t, p).ReadLine(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("it goes on: %q, %v", l, err)
	}
	if !other.Running() {
		t.Error("another has ended with it")
	}
}
