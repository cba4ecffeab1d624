package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carboy-sandbox/carboy/test/long"
)

// snapshot makes one and returns its ID.
func (h *home) snapshot(name string) string {
	h.t.Helper()
	return strings.TrimSpace(h.ok("snapshot", "create", name))
}

// kept lists what is below the state's directory of snapshots.
func (h *home) kept() []string {
	h.t.Helper()
	var names []string
	entries, err := os.ReadDir(filepath.Join(h.dir, "state", "carboy", "snapshots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// What a sandbox wrote, anywhere, is in those that start from its snapshot: over
// each wall, from one wall to the other, and over the deaths of the daemon.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	base := h.create("--user", "root")
	h.ok("exec", "--user", "root", base, "--", "sh", "-c", `echo one > /one; echo two > /usr/two; rm -rf /usr/share/doc/bash
echo three > /home/user/three; echo four > /workspace/four; chown user /home/user/three /workspace/four; echo five > /etc/five`)
	h.killDaemon()
	snap := h.snapshot(base)
	h.killDaemon()
	h.ok("rm", "-f", base)
	const read = "cat /one /usr/two /home/user/three /workspace/four /etc/five; ls -d /usr/share/doc/bash 2>&1; echo x >> /workspace/four"
	const want = "one\ntwo\nthree\nfour\nfive\nls: cannot access '/usr/share/doc/bash': No such file or directory\n"
	for _, wall := range []string{"gvisor", "process"} {
		for range 2 {
			if got := h.ok("run", "--isolation", wall, "--snapshot", snap, "--", "sh", "-c", read); got != want {
				t.Errorf("%s: %q", wall, got)
			}
		}
	}
	h.ok("snapshot", "rm", snap)
	until(t, func() bool { return len(h.kept()) == 0 })
}

// A daemon that is killed at any moment of a snapshot leaves it whole or
// nothing of it, and the sandbox's commands go on.
func TestDaemonKilledInSnapshot(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		name := h.create("--isolation", wall)
		h.ok("exec", name, "--", "sh", "-c", "cd /workspace; mkdir d; for i in $(seq 500); do head -c 40000 /dev/urandom > d/f$i; done; echo end > end")
		h.background(name, `
import os, time
n = 0
while True:
    n += 1
    open("/workspace/m", "w").write("%d" % n)
    os.rename("/workspace/m", "/workspace/n")
    time.sleep(0.001)
`)
		until(t, func() bool { return h.run(nil, "exec", name, "--", "test", "-s", "/workspace/n").code == 0 })
		moments := long.Moments(2, 6, 25*time.Millisecond)
		whole := 0
		for _, at := range moments {
			h.cutShort(at, "snapshot", "create", name)
			count := func() string { return h.ok("exec", name, "--", "cat", "/workspace/n") }
			before := count()
			until(t, func() bool { return count() != before })
			ids := strings.Fields(h.ok("snapshot", "ls"))
			for _, id := range ids {
				if !strings.HasPrefix(id, "sn_") {
					continue
				}
				whole++
				if got := h.ok("run", "--isolation", wall, "--snapshot", id, "--", "sh", "-c", "cat /workspace/d/* | wc -c; cat /workspace/end"); got != "20000000\nend\n" {
					t.Errorf("at %v: what was kept is %q", at, got)
				}
				h.ok("snapshot", "rm", id)
			}
			until(t, func() bool { return len(h.kept()) == 0 })
		}
		t.Logf("%d of %d were kept", whole, len(moments))
	})
}

// Without root it is the same, but for what only root changes.
func TestSnapshotWithoutRoot(t *testing.T) {
	t.Parallel()
	h := newWorld(t).ordinaryHome(carboy)
	for _, wall := range []string{"gvisor", "process"} {
		name := h.create("--isolation", wall)
		h.ok("exec", name, "--", "sh", "-c", "echo one > ~/one; mkdir /workspace/d; echo two > /workspace/d/two; ln /workspace/d/two /workspace/linked")
		if wall == "gvisor" {
			h.ok("exec", "--user", "root", name, "--", "sh", "-c", "mkdir /srv/d; echo x > /srv/d/x; chown 12:34 /srv/d/x")
		}
		read := "cat ~/one /workspace/d/two; [ /workspace/linked -ef /workspace/d/two ] && echo linked; stat -c %U:%G /workspace/linked"
		want := "one\ntwo\nlinked\nuser:user\n"
		if wall == "gvisor" {
			read += "; cat /srv/d/x; stat -c %u:%g /srv/d/x"
			want += "x\n12:34\n"
		}
		snap := h.snapshot(name)
		h.ok("rm", "-f", name)
		for _, other := range []string{"gvisor", "process"} {
			if got := h.ok("run", "--isolation", other, "--snapshot", snap, "--", "sh", "-c", read+"; rm -r /workspace/d; rm ~/one"); got != want {
				t.Errorf("from %s to %s: %q, want %q", wall, other, got, want)
			}
		}
		second := h.create("--snapshot", snap)
		h.ok("exec", second, "--", "sh", "-c", "rm -r /workspace/d; rm ~/one; echo three > /workspace/three")
		above := h.snapshot(second)
		if got := h.ok("run", "--snapshot", above, "--", "sh", "-c", "ls /workspace; ls ~/one 2>/dev/null; true"); got != "linked\nthree\n" {
			t.Errorf("over two: %q", got)
		}
		h.ok("rm", "-f", second)
		h.ok("snapshot", "rm", snap)
		h.ok("snapshot", "rm", above)
		until(t, func() bool { return len(h.kept()) == 0 })
	}
}

// A disk that is full gives an error, leaves nothing, and the sandbox as it
// was.
func TestSnapshotOnFullDisk(t *testing.T) {
	t.Parallel()
	h := newSmallHome(t, "72m")
	name := h.create("--isolation", "process", "--disk", "64m")
	h.ok("exec", name, "--", "sh", "-c", "head -c 40M /dev/urandom > /workspace/big")
	r := h.run(nil, "snapshot", "create", name)
	if r.code != 125 || !strings.Contains(r.stderr, "full") {
		t.Errorf("snapshot: %+v", r)
	}
	if got := h.kept(); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
	h.ok("exec", name, "--", "sh", "-c", "rm /workspace/big; echo x > /workspace/small")
	h.snapshot(name)
}

// Many start from one at once, and don't see each other.
func TestManyFromOneSnapshot(t *testing.T) {
	h := newHome(t)
	name := h.create()
	h.ok("exec", name, "--", "sh", "-c", "echo base > /workspace/f")
	snap := h.snapshot(name)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			script := fmt.Sprintf("cat /workspace/f; echo %d > /workspace/f; sleep 0.2; cat /workspace/f; ls /workspace", i)
			if got, want := h.ok("run", "--snapshot", snap, "--", "sh", "-c", script), fmt.Sprintf("base\n%d\nf\n", i); got != want {
				t.Errorf("%d: %q", i, got)
			}
		})
	}
	wg.Wait()
}

// A snapshot over a pulled image keeps that: its name may go, its files stay as
// long as the snapshot does.
func TestSnapshotOverImage(t *testing.T) {
	t.Parallel()
	saved := saveImage(t, smallImage(t), "small:1")
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		h.ok("image", "import", saved)
		base := h.create("--isolation", wall, "--image", "example.test/small:1")
		h.ok("exec", base, "--", "sh", "-c", "echo kept > /tmp/f; cat /etc/os-release")
		snap := h.snapshot(base)
		h.ok("rm", "-f", base)
		h.ok("image", "rm", "example.test/small:1")
		if got := h.ok("image", "gc"); !strings.Contains(got, "0 images") {
			t.Errorf("gc: %q", got)
		}
		if got := h.ok("run", "--isolation", wall, "--snapshot", snap, "--entrypoint", "/bin/sh", "--", "-c", "cat /tmp/f /etc/os-release; id -u; ls /etc"); !strings.HasPrefix(got, "kept\nNAME=Smaller\n1234\n") || strings.Contains(got, "gone") {
			t.Errorf("over the image: %q", got)
		}
		r := h.run(nil, "create", "--snapshot", snap, "--image", "host")
		if r.code != 125 || !strings.Contains(r.stderr, "it lies over the image") {
			t.Errorf("over another image: %+v", r)
		}
		h.ok("snapshot", "rm", snap)
		if got := h.ok("image", "gc"); !strings.Contains(got, "1 image,") {
			t.Errorf("gc once it is gone: %q", got)
		}
	})
}
