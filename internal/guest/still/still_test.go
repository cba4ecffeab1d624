package still_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/still"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// counter is a shell that appends to a file for as long as it is let.
func counter(t *testing.T, script string) (pid int, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "count")
	cmd := exec.Command("sh", "-c", script, "sh", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	grows(t, file)
	return cmd.Process.Pid, file
}

const forever = `while :; do echo x >> "$1"; done`

func size(t *testing.T, file string) int64 {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return st.Size()
}

// grows waits until a file has grown.
func grows(t *testing.T, file string) {
	t.Helper()
	before := size(t, file)
	if !patience.Until(10*time.Second, func() bool { return size(t, file) != before }) {
		t.Fatalf("%s does not grow", file)
	}
}

func tick() { <-time.After(time.Millisecond) }

func TestHold(t *testing.T) {
	for name, script := range map[string]string{
		"a-loop":    forever,
		"a-child":   `sh -c 'while :; do echo x >> "$1"; done' sh "$1" & wait`,
		"forks":     `while :; do cat /proc/self/stat >> "$1"; done`,
		"an-orphan": `(sh -c 'while :; do echo x >> "$1"; done' sh "$1" &) ; wait; sleep 60`,
		"many":      `for i in 1 2 3 4 5 6 7 8; do sh -c 'while :; do echo x >> "$1"; done' sh "$1" & done; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			_, file := counter(t, script)
			h, err := still.Hold(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			before := size(t, file)
			for range 50 {
				tick()
			}
			if name != "an-orphan" { // which is another's child, without a subreaper
				if got := size(t, file); got != before || !h.Undisturbed() {
					t.Errorf("it wrote %d bytes while it was held", got-before)
				}
			}
			h.Release()
			grows(t, file)
			h.Release()
		})
	}
}

func state(t *testing.T, pid int) byte {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	return raw[strings.LastIndexByte(string(raw), ')')+2]
}

// TestStoppedBefore: what was stopped stays so, and is not let go.
func TestStoppedBefore(t *testing.T) {
	pid, file := counter(t, forever)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if !patience.Until(10*time.Second, func() bool { return state(t, pid) == 'T' }) {
		t.Fatal("it is not stopped")
	}
	h, err := still.Hold(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	h.Release()
	if got := state(t, pid); got != 'T' {
		t.Errorf("state %c, want T", got)
	}
	_ = syscall.Kill(pid, syscall.SIGCONT)
	grows(t, file)
}

// TestContinued: one that something continues is known.
func TestContinued(t *testing.T) {
	pid, file := counter(t, forever)
	h, err := still.Hold(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	_ = syscall.Kill(pid, syscall.SIGCONT)
	grows(t, file)
	if h.Undisturbed() {
		t.Error("Undisturbed = true of one that goes on")
	}
}

func TestSkip(t *testing.T) {
	pid, file := counter(t, forever)
	h, err := still.Hold(t.Context(), pid)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	grows(t, file)
	if !h.Undisturbed() {
		t.Error("what is left out disturbs")
	}
}

func TestHoldEnds(t *testing.T) {
	_, file := counter(t, forever)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h, err := still.Hold(ctx, 0); err == nil {
		h.Release()
		t.Error("Hold by one who left succeeded")
	}
	grows(t, file)
}

// TestParentsAreNotTold: a shell with job control does not see its child
// stopped.
func TestParentsAreNotTold(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skipf("needs bash: %v", err)
	}
	line, err := heldShell(t)
	for again := 1; again < 5 && line == "status 147\n"; again++ { // a stop of the shell that took longer than it is waited for
		t.Logf("tried again: the shell saw its child stopped")
		line, err = heldShell(t)
	}
	if err != nil || line != "status 0\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// heldShell holds a shell with job control and its child a few times, and
// returns what the shell says.
func heldShell(t *testing.T) (line string, err error) {
	t.Helper()
	cmd := exec.Command("bash", "-c", `set -m; sleep 0.3; echo "status $?"`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		h, err := still.Hold(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		h.Release()
	}
	line, _ = bufio.NewReader(out).ReadString('\n')
	return line, cmd.Wait()
}
