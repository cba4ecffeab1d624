package procid_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// helper names the role in which the test binary was started.
const helper = "PROCID_TEST_HELPER"

func init() {
	if os.Getenv(helper) != "" {
		runtime.LockOSThread() // main stays on the first thread
	}
}

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "end-first-thread":
		endFirstThread()
	case "orphan":
		makeOrphan()
	}
}

// endFirstThread leaves a process whose first thread is a zombie.
func endFirstThread() {
	go func() {
		fmt.Println("up")
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(7)
	}()
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

// makeOrphan starts a child that waits for stdin, names it and ends.
func makeOrphan() {
	c := exec.Command("sh", "-c", "read x; exit 5")
	c.Stdin = os.Stdin
	if err := c.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.Process.Pid)
	os.Exit(0)
}

// start runs a command that waits for its stdin to be closed.
func start(t *testing.T, argv ...string) (*exec.Cmd, procid.ID, func()) {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	id, err := procid.Of(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return c, id, func() { in.Close() }
}

func open(t *testing.T, id procid.ID) *procid.Handle {
	t.Helper()
	h, err := procid.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestWaitReapsAChild(t *testing.T) {
	tests := []struct {
		name string
		end  func(h *procid.Handle, release func()) error
		want procid.Exit
	}{
		{"exit-code", func(_ *procid.Handle, release func()) error { release(); return nil }, procid.Exit{Known: true, Code: 3}},
		{"kill", func(h *procid.Handle, _ func()) error { return h.Kill() }, procid.Exit{Known: true, Signal: unix.SIGKILL}},
		{"signal", func(h *procid.Handle, _ func()) error { return h.Signal(unix.SIGTERM) }, procid.Exit{Known: true, Signal: unix.SIGTERM}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, id, release := start(t, "sh", "-c", "read x; exit 3")
			h := open(t, id)
			if !h.Alive() || !procid.Alive(id) {
				t.Fatal("a running process is not alive")
			}
			if err := tt.end(h, release); err != nil {
				t.Fatal(err)
			}
			for range 2 { // a second wait repeats the answer
				got, err := h.Wait(t.Context())
				if err != nil || got != tt.want {
					t.Errorf("Wait = %+v, %v; want %+v", got, err, tt.want)
				}
			}
			if err := h.Kill(); err != nil {
				t.Errorf("Kill of an ended process = %v", err)
			}
			if err := h.Signal(unix.SIGTERM); !errors.Is(err, procid.ErrGone) {
				t.Errorf("Signal to a reaped process = %v, want ErrGone", err)
			}
		})
	}
}

func TestZombieIsDead(t *testing.T) {
	_, id, _ := start(t, "sh", "-c", "read x")
	h := open(t, id)
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.Alive() || procid.Alive(id) {
		t.Error("a zombie is alive")
	}
	if _, err := procid.Open(id); !errors.Is(err, procid.ErrGone) {
		t.Errorf("Open of a zombie = %v, want ErrGone", err)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
	if err != nil {
		t.Fatalf("the zombie was reaped by Done: %v", err)
	}
	if s, err := procid.ParseStat(b); err != nil || s.State != 'Z' {
		t.Errorf("state = %c, %v; want Z", s.State, err)
	}
}

func TestFirstThreadEndedIsAlive(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helper+"=end-first-thread")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	h, err := procid.OpenPID(c.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	waitState(t, c.Process.Pid, 'Z')
	if !h.Alive() {
		t.Error("a process of which other threads run is not alive")
	}
	in.Close()
	if got, err := h.Wait(t.Context()); err != nil || got.Code != 7 {
		t.Errorf("Wait = %+v, %v; want code 7", got, err)
	}
}

// waitState returns once the first thread of pid has the state.
func waitState(t *testing.T, pid int, want byte) {
	t.Helper()
	ok := patience.Until(20*time.Second, func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		s, err := procid.ParseStat(b)
		if err != nil {
			t.Fatal(err)
		}
		return s.State == want
	})
	if !ok {
		t.Fatalf("process %d never had the state %c", pid, want)
	}
}

func TestOpenRefusesAStranger(t *testing.T) {
	_, id, _ := start(t, "sh", "-c", "read x")
	other, reboot, gone := id, id, id
	other.StartTime--
	reboot.BootID = "00000000-0000-0000-0000-000000000000"
	gone.PID = 1 << 30
	for name, id := range map[string]procid.ID{"other-start": other, "other-boot": reboot, "no-such": gone} {
		if h, err := procid.Open(id); !errors.Is(err, procid.ErrGone) {
			t.Errorf("%s: Open = %v, %v; want ErrGone", name, h, err)
		}
	}
	for _, pid := range []int{0, -1} {
		if _, err := procid.OpenPID(pid); err == nil {
			t.Errorf("OpenPID(%d) succeeded", pid)
		}
	}
	if !procid.Alive(id) { // the negative control
		t.Error("the right ID is not alive")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	_, id, _ := start(t, "sh", "-c", "read x")
	h := open(t, id)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = h.Wait(ctx) })
	}
	cancel(cause)
	wg.Wait()
	for _, err := range errs {
		if !errors.Is(err, cause) {
			t.Errorf("Wait = %v, want the cause", err)
		}
	}
	if !h.Alive() {
		t.Error("a cancelled wait ended the process")
	}
}

func TestManyWaitersOneKill(t *testing.T) {
	_, id, _ := start(t, "sh", "-c", "read x")
	h := open(t, id)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := h.Wait(t.Context())
			if err != nil || got.Signal != unix.SIGKILL {
				t.Errorf("Wait = %+v, %v", got, err)
			}
		})
	}
	if err := h.Kill(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestOrphanComesToTheSubreaper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), helper+"=orphan")
	c.Stdin = r
	out, err := c.Output()
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	h, err := procid.OpenPID(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	w.Close()
	if got, err := h.Wait(t.Context()); err != nil || got != (procid.Exit{Known: true, Code: 5}) {
		t.Errorf("Wait = %+v, %v; want code 5", got, err)
	}
}

func TestNotOurChild(t *testing.T) {
	// The middle shell reaps it, so the status is not ours to learn.
	c := exec.Command("sh", "-c", "sh -c 'echo $$; read x; exit 4' <&3 & wait; exit 0")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c.ExtraFiles = []*os.File{r}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	h, err := procid.OpenPID(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if got, err := h.Reap(); err != nil || got.Known {
		t.Errorf("Reap of a running stranger = %+v, %v", got, err)
	}
	w.Close()
	if got, err := h.Wait(t.Context()); err != nil || got.Known {
		t.Errorf("Wait = %+v, %v; want an unknown exit", got, err)
	}
	_ = c.Wait()
}

func TestSelf(t *testing.T) {
	id, err := procid.Self()
	if err != nil {
		t.Fatal(err)
	}
	if id.PID != os.Getpid() || id.IsZero() || !procid.Alive(id) {
		t.Errorf("Self = %v", id)
	}
}

func TestParseStat(t *testing.T) {
	tail := "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 99 1\n"
	ok := func(comm string) procid.Stat {
		return procid.Stat{PID: 12, Comm: comm, State: 'S', PPID: 7, StartTime: 4242}
	}
	tests := []struct {
		name, line string
		want       procid.Stat // zero: an error is wanted
	}{
		{"plain", "12 (sh) " + tail, ok("sh")},
		{"space", "12 (a b) " + tail, ok("a b")},
		{"parenthesis", "12 (a) Z 1 (b) " + tail, ok("a) Z 1 (b")},
		{"newline", "12 (a\n) R) " + tail, ok("a\n) R")},
		{"empty-name", "12 () " + tail, ok("")},
		{"empty", "", procid.Stat{}},
		{"no-name", "12 S 7", procid.Stat{}},
		{"short", "12 (sh) S 7 1", procid.Stat{}},
		{"no-pid", " (sh) " + tail, procid.Stat{}},
		{"zero-pid", "0 (sh) " + tail, procid.Stat{}},
		{"huge-pid", "99999999999 (sh) " + tail, procid.Stat{}},
		{"negative-start", "12 (sh) " + strings.Replace(tail, "4242", "-1", 1), procid.Stat{}},
		{"odd-state", "12 (sh) " + strings.Replace(tail, "S", "\x80", 1), procid.Stat{}},
		{"too-long", "12 (" + strings.Repeat("x", 5000) + ") " + tail, procid.Stat{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := procid.ParseStat([]byte(tt.line))
			if (err != nil) != (tt.want == procid.Stat{}) {
				t.Errorf("error = %v", err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	self, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(self)
	f.Add([]byte("12 (a) Z 1 (b) S 7 1 1 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4242 99\n"))
	f.Add([]byte(") ( ("))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := procid.ParseStat(line)
		if err != nil {
			if s != (procid.Stat{}) {
				t.Errorf("an error and a result: %+v", s)
			}
			return
		}
		// What was understood must survive being written as the kernel does.
		again := fmt.Sprintf("%d (%s) %c %d"+strings.Repeat(" 0", 17)+" %d\n", s.PID, s.Comm, s.State, s.PPID, s.StartTime)
		if got, err := procid.ParseStat([]byte(again)); err != nil || got != s {
			t.Errorf("%q read again = %+v, %v; want %+v", again, got, err, s)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	id, err := procid.Self()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h, err := procid.Open(id)
		if err != nil {
			b.Fatal(err)
		}
		h.Close()
	}
}
