package cgroup_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/cgroup"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// The first thread is the one that /proc/self shows: it must stay as it is.
func init() { runtime.LockOSThread() }

// fake makes what the kernel would: a directory with a commands' group that
// has already n children.
func fake(t *testing.T, n int, controllers ...string) (base *os.File, commands string) {
	t.Helper()
	dir := t.TempDir()
	commands = filepath.Join(dir, "x", "commands")
	put(t, filepath.Join(dir, "x", "agent"), "cgroup.procs", "")
	if len(controllers) > 0 {
		for _, d := range []string{dir, filepath.Dir(commands), commands} {
			put(t, d, "cgroup.subtree_control", "")
		}
	}
	if slices.Contains(controllers, "memory") {
		put(t, filepath.Dir(commands), "memory.oom.group", "0\n")
	}
	for _, d := range append([]string{commands}, children(commands, n)...) {
		put(t, d, "cgroup.events", "populated 0\nfrozen 0\n")
		put(t, d, "cgroup.kill", "")
		for _, c := range controllers {
			put(t, d, c+".events", "max 0\noom_kill 0\n")
			put(t, d, c+".max", "max\n")
		}
	}
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = base.Close() })
	return base, commands
}

func children(commands string, n int) (dirs []string) {
	for i := range n {
		dirs = append(dirs, filepath.Join(commands, strconv.Itoa(i+1)))
	}
	return dirs
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func text(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestPrepareFake(t *testing.T) {
	base, commands := fake(t, 1, "pids", "memory")
	tree, err := cgroup.Prepare(base, cgroup.Options{Name: "x", PIDs: 77})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if got := text(t, base.Name(), "x", "agent", "cgroup.procs"); got != "0" {
		t.Errorf("agent's cgroup.procs = %q, want 0", got)
	}
	if got := text(t, commands, "pids.max"); !strings.HasPrefix(got, "77") {
		t.Errorf("pids.max = %q", got)
	}
	if !tree.LimitsPIDs() {
		t.Error("the limit is not reported")
	}
	put(t, commands, "pids.events", "max 12\n")
	if got := tree.PIDsRefused(); got != 12 {
		t.Errorf("PIDsRefused = %d, want 12", got)
	}
}

func TestWithoutControllers(t *testing.T) {
	base, _ := fake(t, 1)
	tree, err := cgroup.Prepare(base, cgroup.Options{Name: "x", PIDs: 77})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if tree.LimitsPIDs() {
		t.Error("a limit is reported that is not there")
	}
	g, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	if g.PIDsRefused() != cgroup.None || g.OutOfMemory() != cgroup.None {
		t.Error("a limit was reached that is not there")
	}
	g.Release()
}

// What a command's group counted for the one before is not its own.
func TestCountersFake(t *testing.T) {
	base, commands := fake(t, 1, "pids", "memory")
	tree, err := cgroup.Prepare(base, cgroup.Options{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	one := children(commands, 1)[0]
	g, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	if g.PIDsRefused() != cgroup.None || g.OutOfMemory() != cgroup.None {
		t.Error("a fresh group has reached a limit")
	}
	put(t, one, "pids.events", "max 3\n")
	put(t, one, "memory.events", "low 0\noom 1\noom_kill 1\n")
	if g.PIDsRefused() != cgroup.Certain || g.OutOfMemory() != cgroup.Certain {
		t.Error("the limits that were reached are not reported")
	}
	g.Release()
	if g, err = tree.Acquire(); err != nil {
		t.Fatal(err)
	}
	if g.PIDsRefused() != cgroup.None || g.OutOfMemory() != cgroup.None {
		t.Error("the next command inherits what the last one did")
	}
}

// A group is not another command's while someone lives in it, and can't be
// killed by its old owner once it is.
func TestReuseFake(t *testing.T) {
	base, commands := fake(t, 2)
	tree, err := cgroup.Prepare(base, cgroup.Options{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dirs := children(commands, 2)
	first, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	put(t, dirs[0], "cgroup.events", "populated 1\n")
	first.Release()
	second, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	if where(t, second) != dirs[1] {
		t.Errorf("the second command got %s, where the first one's processes live", where(t, second))
	}
	put(t, dirs[0], "cgroup.events", "populated 0\n")
	third, err := tree.Acquire()
	if err != nil {
		t.Fatal(err)
	}
	if where(t, third) != dirs[0] {
		t.Errorf("the third command got %s, want the first one's again", where(t, third))
	}
	put(t, dirs[0], "cgroup.events", "populated 1\n")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := text(t, dirs[0], "cgroup.kill"); got != "" {
		t.Error("the first command's kill hit the third")
	}
}

func where(t *testing.T, g *cgroup.Group) string {
	t.Helper()
	dir, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(g.FD()))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// realTree makes a tree in this machine's own hierarchy.
func realTree(t testing.TB, opts cgroup.Options) *cgroup.Hierarchy {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
		}
	}
	if root == "" {
		t.Skip("no cgroup v2 here")
	}
	dir, err := os.MkdirTemp(root, "carboy-test-")
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		// The tree has taken its own away, and this process back.
		if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			t.Error(err)
		}
		// A thread that was about to end is not moved, and gone in a moment.
		var err error
		patience.Until(10*time.Second, func() bool { err = unix.Rmdir(dir); return !errors.Is(err, unix.EBUSY) })
		if err != nil {
			t.Error(dir, err)
		}
	})
	base, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	tree, err := cgroup.Prepare(base, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree
}

// Double forks, sessions of their own and endless forking: none outlives Kill.
func TestKill(t *testing.T) {
	tests := []struct{ name, script string }{
		{"one", "echo; exec sleep 1000"},
		{"double-fork", "(setsid sh -c 'echo; sleep 1000 & exec sleep 1000' &) & exit 0"},
		{"always-forking", "f() { echo; while :; do sh -c 'sleep 0.01 & exit' ; done; }; f & f"},
	}
	tree := realTree(t, cgroup.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := tree.Acquire()
			if err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd := exec.Command("/bin/sh", "-c", tt.script)
			cmd.Stdout = w
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			if _, err := r.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			// All that held the pipe are gone.
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Error(err)
			}
			_ = cmd.Wait()
			g.Release()
			if err := g.Kill(); err != nil {
				t.Errorf("a second Kill = %v", err)
			}
		})
	}
}

// Close takes the directories away though threads end in them, which takes its
// time where they had namespaces; but it waits for no process that lives on.
func TestClose(t *testing.T) {
	t.Run("ending-threads", func(t *testing.T) {
		tree := realTree(t, cgroup.Options{})
		for range 40 {
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // never unlocked: the thread ends
				done <- unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
			}()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		dir := place(t, tree)
		tree.Close()
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	})
	t.Run("process", func(t *testing.T) {
		tree := realTree(t, cgroup.Options{})
		cmd := exec.Command("sleep", "1000") // born in the agent's group
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		dir := place(t, tree)
		began := time.Now()
		tree.Close()
		took := time.Since(began)
		left := text(t, dir, "agent", "cgroup.procs")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if took > cgroup.Patience/2 || left != strconv.Itoa(cmd.Process.Pid)+"\n" {
			t.Errorf("it took %v; %q is left", took, left)
		}
		for _, d := range []string{filepath.Join(dir, "agent"), dir} {
			if err := unix.Rmdir(d); err != nil {
				t.Error(d, err)
			}
		}
	})
}

// place is the directory that holds the tree's others.
func place(t *testing.T, tree *cgroup.Hierarchy) string {
	t.Helper()
	g := acquire(t, tree)
	defer g.Release()
	return filepath.Dir(filepath.Dir(where(t, g)))
}

// The mount that Open makes is seen by nobody. This does not run Open itself,
// which would move the test process.
func TestMountIsPrivate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	before := proc(t)
	root, pin, err := cgroup.MountForTest()
	if err != nil {
		if errors.Is(err, unix.ENODEV) {
			t.Skip("no cgroup v2 here")
		}
		t.Fatal(err)
	}
	defer pin.Close()
	defer root.Close()
	if got := proc(t); got != before {
		t.Errorf("what is mounted at /proc changed from %q to %q", before, got)
	}
	names, err := root.Readdirnames(-1)
	if err != nil || !slices.Contains(names, "cgroup.procs") {
		t.Errorf("the mount holds %q, %v", names, err)
	}
}

// proc returns the mounts at /proc. Others may come and go on a busy machine.
func proc(t *testing.T) (mounts string) {
	t.Helper()
	for line := range strings.Lines(text(t, "/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/proc" {
			mounts += line
		}
	}
	return mounts
}

func FuzzCounter(f *testing.F) {
	f.Add("low 0\noom_kill 3\n", "oom_kill")
	f.Fuzz(func(t *testing.T, text, key string) {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if n := cgroup.CounterForTest(file, key); n != 0 && !strings.Contains(text, key+" ") {
			t.Errorf("%q of %q = %d", key, text, n)
		}
	})
}

func FuzzNumber(f *testing.F) {
	f.Add("12\n")
	f.Add("max\n")
	f.Add("-1")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		put(t, dir, "f", text)
		file, err := os.Open(filepath.Join(dir, "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		n, ok := cgroup.NumberForTest(file)
		if want, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); len(text) <= 32 && (ok != (err == nil) || ok && n != want) {
			t.Errorf("%q = %d, %t; want %d, %v", text, n, ok, want, err)
		}
	})
}

func BenchmarkAcquireRelease(b *testing.B) {
	tree := realTree(b, cgroup.Options{})
	for b.Loop() {
		g, err := tree.Acquire()
		if err != nil {
			b.Fatal(err)
		}
		g.Release()
	}
}
