package cgroup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
)

// Each command's group says the limit of all, and the one that enforces it is the host's.
func TestToldLimits(t *testing.T) {
	base, commands := rooted(t, 2, "memory", "pids")
	tree := prepare(t, base, cgroup.Options{Root: base.Name(), CPUs: 1, Memory: 512 << 20})
	running, ended := acquire(t, tree), acquire(t, tree)
	defer running.Release()
	ended.Release()
	is := func(want string) {
		t.Helper()
		for _, dir := range children(commands, 2) {
			if got := text(t, dir, "memory.max"); !strings.HasPrefix(got, want) {
				t.Errorf("%s: memory.max is %q, want %q", filepath.Base(dir), got, want)
			}
		}
		if got := text(t, commands, "memory.max"); got != "64\n" {
			t.Errorf("the limit of all was set to %q", got)
		}
	}
	is("536870912")
	tree.Tell(2, 1<<30)
	is("1073741824")
}

// What is shown begins at the parent of all commands' groups, and nobody can write to it.
func TestShow(t *testing.T) {
	const inside = "CGROUP_TEST_SHOW"
	if os.Getenv(inside) == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to mount control groups")
		}
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestShow$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("needs control groups of version 2 that can be mounted: %s", out)
		}
		if err != nil {
			t.Errorf("inside: %v\n%s", err, out)
		}
		return
	}
	at := os.Getenv(inside)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	base, pin, err := cgroup.MountForTest()
	if err != nil {
		t.Skipf("needs control groups of version 2: %v", err)
	}
	defer pin.Close()
	defer base.Close()
	tree := prepare(t, base, cgroup.Options{Namespace: true})
	if tree.Namespace() == nil {
		t.Fatal("there is no namespace")
	}
	g := acquire(t, tree)
	defer g.Release()
	if err := tree.Show(at); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	entries, err := os.ReadDir(at)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, e.Name())
		}
	}
	if len(dirs) != 1 || dirs[0] != "1" {
		t.Errorf("the groups %q are shown, want that of the command alone", dirs)
	}
	if err := os.WriteFile(filepath.Join(at, "cgroup.max.depth"), []byte("1"), 0); err == nil {
		t.Error("what is shown can be written")
	}
}
