package trace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// open opens a tracefs. Where there is none to be had, it holds that the error
// says what is needed, and returns nil: that is all that there is to see then.
func open(t *testing.T) *Kernel {
	t.Helper()
	k, err := Open()
	if err == nil {
		t.Cleanup(func() { k.Close() })
		return k
	}
	if kind := sandbox.KindOf(err); kind != sandbox.Denied && kind != sandbox.Unsupported {
		t.Fatalf("error %v of kind %v", err, kind)
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "it needs") && !strings.Contains(text, "it must") {
		t.Fatalf("%q does not say what is needed", text)
	}
	t.Logf("not traced: %v", err)
	return nil
}

// left are the instances of this process that are there.
func (k *Kernel) left() (names []string, err error) {
	entries, err := os.ReadDir(k.instances())
	for _, e := range entries {
		if owner(e.Name()) == os.Getpid() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func TestRecord(t *testing.T) {
	k := open(t)
	if k == nil {
		return
	}
	run, err := k.Record(nil, func() error { return exec.Command("/bin/sh", "-c", "/bin/true; /bin/true; :").Run() })
	if err != nil {
		t.Fatal(err)
	}
	if left, err := k.left(); err != nil || len(left) > 0 {
		t.Errorf("it left %q (%v)", left, err)
	}
	got := map[string]int{}
	sum := 0.0
	for _, p := range run.Processes {
		got[p.Name]++
		sum += p.CPU
		if p.Name == "" || p.CPU < 0 || p.Tasks == 0 || p.End == nil {
			t.Errorf("%+v", p)
		}
	}
	if len(run.Processes) != 3 || got["sh"] != 1 || got["true"] != 2 {
		t.Errorf("processes: %v", got)
	}
	if wall := (run.Whole + run.Phases[0].Took) * float64(runtime.NumCPU()); sum <= 0 || sum > wall+0.001 {
		t.Errorf("%v ms of a processor, and there were %v", sum, wall)
	}
	path := 0.0
	for _, s := range run.Path {
		path += s.Took
	}
	if path <= 0 || path > run.Whole+0.001 {
		t.Errorf("the end waited %v ms of %v: %+v", path, run.Whole, run.Path)
	}
}

// TestRecordOfWhatWasThere: a process that the command wakes is in the trace if it
// is named, and not otherwise.
func TestRecordOfWhatWasThere(t *testing.T) {
	k := open(t)
	if k == nil {
		return
	}
	for _, named := range []bool{true, false} {
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		there := exec.Command("/bin/cat", fifo)
		if err := there.Start(); err != nil {
			t.Fatal(err)
		}
		var pids []int
		if named {
			pids = append(pids, there.Process.Pid)
		}
		run, err := k.Record(pids, func() error { return exec.Command("/bin/sh", "-c", "echo >"+fifo).Run() })
		if err := errors.Join(err, there.Wait()); err != nil {
			t.Fatal(err)
		}
		seen := slices.ContainsFunc(run.Processes, func(p Process) bool { return p.Before && p.PID == there.Process.Pid })
		if seen != named || len(run.Processes) > 2 {
			t.Errorf("named: %v, seen: %v of %+v", named, seen, run.Processes)
		}
	}
}

func TestRecordLeavesNothing(t *testing.T) {
	k := open(t)
	if k == nil {
		return
	}
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		start func() error
		want  string
	}{
		"it fails":        {func() error { return failed }, "failed"},
		"nothing started": {func() error { return nil }, "start is not in the trace"},
	} {
		if _, err := k.Record(nil, tt.start); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v", name, err)
		}
		if left, err := k.left(); err != nil || len(left) > 0 {
			t.Errorf("%s: it left %q (%v)", name, left, err)
		}
	}
}

// TestOpenSweeps: what a killed process left is taken away by the next; what is
// another's, or of a process that lives, is left alone.
func TestOpenSweeps(t *testing.T) {
	k := open(t)
	if k == nil {
		return
	}
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	make := func(name string) string {
		dir := filepath.Join(k.instances(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // it may be gone
		return dir
	}
	dead := make(fmt.Sprintf("%s%d-names", prefix, ended.Process.Pid))
	alive := make(fmt.Sprintf("%s%d-other", prefix, os.Getpid()))
	foreign := make(fmt.Sprintf("other-bench-%d", ended.Process.Pid))
	again, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for dir, want := range map[string]bool{dead: false, alive: true, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", filepath.Base(dir), err, want)
		}
	}
}

func TestOwner(t *testing.T) {
	for name, want := range map[string]int{
		"carboy-bench-12": 12, "carboy-bench-12-names": 12, "carboy-bench-": 0, "carboy-bench-x": 0, "carboy-bench--5": 0, "other-12": 0, "carboy-bench-99999999999999999999": 0,
	} {
		if got := owner(name); got != want {
			t.Errorf("owner(%q) = %d, want %d", name, got, want)
		}
	}
}
