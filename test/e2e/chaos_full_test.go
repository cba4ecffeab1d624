package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newSmallHome is a home whose state is on a file system of size bytes.
func newSmallHome(t *testing.T, size string) *home {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	h := newHome(t)
	state := h.dir + "/state"
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("carboy-small", state, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mount a small file system:", err)
	}
	// Cleanups run in reverse: this one first, so it ends the home by itself.
	t.Cleanup(func() {
		for _, sb := range h.list() {
			h.run(nil, "rm", "-f", sb.Name)
		}
		h.run(nil, "daemon", "stop")
		until(t, func() bool { return !errors.Is(syscall.Unmount(state, 0), syscall.EBUSY) })
	})
	return h
}

// fill takes all space of the state's file system but left bytes, and returns
// how to give it back.
func (h *home) fill(left int) (free func()) {
	h.t.Helper()
	name := filepath.Join(h.dir, "state", "filler")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	var n int64
	for more := int64(1); more > 0; n += more {
		more = fillOnce(h.t, f)
	}
	if err := f.Truncate(max(0, n-int64(left))); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			h.t.Error(err)
		}
	}
}

// fillAgain takes what has become free of a disk that fill has filled: a daemon whose
// records found no room has given up what it kept for that.
func (h *home) fillAgain() {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.dir, "state", "filler"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	for fillOnce(h.t, f) > 0 {
	}
}

// fillOnce appends to a file until no block is left, and returns how many bytes that were.
// What others have deleted before is free by then, which ext4 says only once it is on the
// disk; what they delete meanwhile may not be.
func fillOnce(t testing.TB, f *os.File) (n int64) {
	t.Helper()
	if err := unix.Syncfs(int(f.Fd())); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); ; {
		m, err := f.Write(block)
		n += int64(m)
		if err != nil {
			return n
		}
	}
}

// A disk that is full fails a create with words for it, and leaves nothing of
// it; what was there goes on, and all is well once there is room.
func TestStateDiskFull(t *testing.T) {
	t.Parallel()
	behindOne(t, "gvisor", func(t *testing.T, wall string) {
		h := newSmallHome(t, "192m")
		before := h.create("--isolation", wall, "--disk", "32m")
		h.ok("exec", before, "--", "sh", "-c", "echo work > /workspace/f")
		for _, left := range []int{0, 4 << 10, 64 << 10, 512 << 10} {
			free := h.fill(left)
			r := h.run(nil, "create", "--isolation", wall, "--name", "late")
			if r.code != 0 && !strings.Contains(r.stderr, "space") && !strings.Contains(r.stderr, "full") {
				t.Errorf("%d bytes left: exit code %d, %s", left, r.code, r.stderr)
			}
			if left == 0 && r.code == 0 {
				t.Error("a sandbox was made on a full disk")
			}
			if n := len(h.list()); r.code != 0 && n != 1 {
				t.Errorf("%d bytes left: a failed create left %d sandboxes", left, n-1)
			}
			// Reading and running need no room.
			if got := h.run(nil, "exec", before, "--", "cat", "/workspace/f"); got.stdout != "work\n" {
				t.Errorf("%d bytes left: exec: %+v", left, got)
			}
			free()
			if r.code == 0 {
				h.ok("rm", "-f", "late")
			}
			h.ok("create", "--isolation", wall, "--name", "late")
			h.ok("exec", "late", "--", "true")
			h.ok("rm", "-f", "late")
		}
	})
}

// A daemon can't be started on a full disk, says so, and can be after.
func TestDaemonStartsOnFullDisk(t *testing.T) {
	t.Parallel()
	h := newSmallHome(t, "16m")
	free := h.fill(0)
	r := h.runFor(time.Minute, nil, "ls")
	if r.code == 0 {
		t.Log("it starts all the same")
	} else if !strings.Contains(r.stderr, "space") && !strings.Contains(r.stderr, "full") {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	free()
	h.ok("ls")
}
