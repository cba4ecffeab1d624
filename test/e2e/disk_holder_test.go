package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// holderOf returns the process that holds the home's disks.
func (h *home) holderOf() int {
	h.t.Helper()
	pid, ok := h.holder()
	if !ok {
		h.t.Fatal("no process holds the disks")
	}
	return pid
}

func (h *home) holder() (pid int, ok bool) {
	h.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range dirs {
		if b, err := os.ReadFile(name); err == nil && bytes.HasPrefix(b, []byte("carboy-disks\x00")) && bytes.Contains(b, []byte(h.dir+"/")) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid, err == nil
		}
	}
	return 0, false
}

// Where the process that holds the disks is killed under a writer, another goes on: it
// sees a pause, and nothing that was synced is lost.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	asksAgain(t)
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		name := h.create("--isolation", wall, "--disk", "64m")
		h.ok("stop", name) // its disk is shown a second time
		h.ok("start", name)
		w := h.writeBlocks(name)
		for range 5 {
			stood := w.acked.Load()
			until(t, func() bool { return w.acked.Load() > stood+3 })
			h.killHolder()
		}
		stood := w.acked.Load()
		until(t, func() bool { return w.acked.Load() > stood+3 })
		if out := h.ok("ls"); strings.Contains(out, "broken") {
			t.Errorf("it is called broken:\n%s", out)
		}
		w.end(h, name)
		h.ok("stop", name)
		h.ok("start", name)
		if wrong := h.wrong(name, w.acked.Load()); wrong != "" {
			t.Errorf("of %d blocks that were synced: %s", w.acked.Load()+1, wrong)
		}
	})
}

// Where the daemon is killed too, nobody can go on. That is said, and what was synced
// before is there after the next start.
func TestHolderAndDaemonKilled(t *testing.T) {
	t.Parallel()
	behindOne(t, "process", func(t *testing.T, wall string) {
		h := newDiskHome(t, smallDisk, 40_000)
		name := h.create("--isolation", wall, "--disk", "64m")
		w := h.writeBlocks(name)
		until(t, func() bool { return w.acked.Load() > 5 })
		synced := w.acked.Load()
		holder := h.holderOf()
		h.killDaemon()
		if err := syscall.Kill(holder, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return strings.Contains(h.ok("ls"), "running (disk broken)") })
		if out := h.ok("inspect", name); !strings.Contains(out, "broken: the process that") {
			t.Errorf("inspect says nothing of it:\n%s", out)
		}
		if log := h.ok("logs", name); !strings.Contains(log, "its disk is broken: ") {
			t.Errorf("its log says nothing of it:\n%s", log)
		}
		h.ok("stop", name)
		<-w.done
		h.ok("start", name)
		until(t, func() bool { return !strings.Contains(h.ok("ls"), "broken") })
		if wrong := h.wrong(name, synced); wrong != "" {
			t.Errorf("of %d blocks that were synced: %s", synced+1, wrong)
		}
	})
}

// killHolder kills the process that holds the disks, and waits until another does.
func (h *home) killHolder() {
	h.t.Helper()
	pid := h.holderOf()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
	until(h.t, func() bool {
		next, ok := h.holder()
		return ok && next != pid
	})
}

// asksAgain skips a test on a kernel that does not ask another process again.
func asksAgain(t *testing.T) {
	t.Helper()
	if !newerKernel(t) {
		t.Skip("needs a kernel of version 6.9")
	}
}

// newerKernel reports whether the kernel asks another process again what it asked one that is dead.
func newerKernel(t *testing.T) bool {
	t.Helper()
	raw, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(raw), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 9
}
