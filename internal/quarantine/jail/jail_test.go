package jail_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/quarantine/jail"
	"github.com/carboy-sandbox/carboy/internal/role"
)

func TestMain(m *testing.M) {
	role.Become(jail.Roles())
	if len(os.Args) == 5 && os.Args[1] == probeMark {
		probe(os.Args[2:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// probeMark is the argument by which this binary tries what a git would that was taken over.
const probeMark = "try"

// attempts are what it tries, by name. The directories are those of the reader.
func attempts(dir, read, write string) map[string]func() error {
	open := func(name string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
			if err == nil {
				_ = unix.Close(fd)
			}
			return err
		}
	}
	return map[string]func() error{
		"read-an-object":   open(filepath.Join(read, "object"), unix.O_RDONLY),
		"write-the-index":  open(filepath.Join(write, "index"), unix.O_WRONLY|unix.O_CREAT),
		"read-elsewhere":   open(filepath.Join(dir, "..", "secret"), unix.O_RDONLY),
		"read-passwords":   open("/etc/passwd", unix.O_RDONLY),
		"read-itself":      open("/proc/self/environ", unix.O_RDONLY),
		"list-root":        open("/", unix.O_RDONLY|unix.O_DIRECTORY),
		"write-an-object":  open(filepath.Join(read, "object"), unix.O_WRONLY),
		"make-an-object":   open(filepath.Join(read, "new"), unix.O_WRONLY|unix.O_CREAT),
		"write-elsewhere":  open(filepath.Join(dir, "..", "new"), unix.O_WRONLY|unix.O_CREAT),
		"cut-by-reading":   open(filepath.Join(read, "object"), unix.O_RDONLY|unix.O_TRUNC),
		"cut-elsewhere":    open(filepath.Join(dir, "..", "secret"), unix.O_RDONLY|unix.O_TRUNC),
		"cut-an-object":    func() error { return unix.Truncate(filepath.Join(read, "object"), 0) },
		"remove-an-object": func() error { return unix.Unlink(filepath.Join(read, "object")) },
		"mode-of-object":   func() error { return unix.Chmod(filepath.Join(read, "object"), 0o777) },
		"link-out":         func() error { return unix.Symlink("/etc", filepath.Join(write, "link")) },
		"move-out":         func() error { return unix.Rename(filepath.Join(write, "index"), filepath.Join(read, "index")) },
		"socket":           socket(unix.AF_INET),
		"socket-unix":      socket(unix.AF_UNIX),
		"socket-netlink":   socket(unix.AF_NETLINK),
		"execute":          func() error { return exec.Command("/bin/true").Run() },
		"signal":           func() error { return unix.Kill(os.Getppid(), 0) },
		"namespace":        func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"far-more-memory": func() error {
			b, err := unix.Mmap(-1, 0, 8<<30, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err == nil {
				err = unix.Munmap(b)
			}
			return err
		},
	}
}

func socket(family int) func() error {
	return func() error {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
}

// allowed is all that a reader may do.
var allowed = map[string]bool{"read-an-object": true, "write-the-index": true}

// probe tries all of it, and says how each ended.
func probe(args []string) {
	var st unix.Stat_t // before this process opens anything
	fmt.Printf("descriptor %v\n", unix.Fstat(3, &st) == nil)
	for name, try := range attempts(args[0], args[1], args[2]) {
		err := try()
		fmt.Printf("%s %v\n", name, err == nil)
	}
}

// TestReader: what reads a sandbox's objects has the right to read them and to write an
// index, and no other.
func TestReader(t *testing.T) {
	top := t.TempDir()
	dir, read, write := filepath.Join(top, "git"), filepath.Join(top, "objects"), filepath.Join(top, "out")
	for _, d := range []string{dir, read, write} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{filepath.Join(top, "secret"), filepath.Join(read, "object")} {
		if err := os.WriteFile(f, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("CARBOY_TEST_SECRET", "not for git")
	tryInside(t, dir, read, write, true)
	tryInside(t, dir, read, write, false)
	// The same attempts without walls: most of them succeed, and so were refused by the walls.
	free := 0
	for name, try := range attempts(dir, read, write) {
		if name == "namespace" || name == "far-more-memory" { // these are not for this process
			continue
		}
		if err := try(); err == nil {
			free++
		} else if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOENT) {
			t.Logf("%s, without walls: %v", name, err)
		}
	}
	if free < 12 {
		t.Errorf("without walls %d attempts succeed", free)
	}
}

// tryInside makes all attempts behind the walls. One that has helpers may execute besides.
func tryInside(t *testing.T, dir, read, write string, helpers bool) {
	t.Helper()
	out, err := jail.InReaderForTest(t.Context(), dir, read, write, helpers, probeMark, dir, read, write)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen := 0
	for line := range strings.Lines(out) {
		name, did, _ := strings.Cut(strings.TrimSpace(line), " ")
		if seen++; (did == "true") != (allowed[name] || helpers && name == "execute") {
			t.Errorf("%s, with helpers %v: it did: %s", name, helpers, did)
		}
	}
	if want := len(attempts(dir, read, write)); seen < want {
		t.Errorf("%d of %d were tried: %s", seen, want, out)
	}
}

// TestLandlockCuts: who may read a file does not empty it, whatever the filter says. Before
// Landlock's version 3 the filter alone says so.
func TestLandlockCuts(t *testing.T) {
	read, write := t.TempDir(), t.TempDir()
	cut := func(dir string) error {
		name := filepath.Join(dir, "file")
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return jail.BehindLandlockForTest(read, write, func() error {
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		})
	}
	if err := cut(write); err != nil {
		t.Errorf("where it writes: %v", err)
	}
	if err := cut(read); err == nil && jail.LandlockCutsForTest() {
		t.Error("it cut a file that it may read")
	}
}

// BenchmarkRun is how long a git takes behind walls that has nothing to do.
func BenchmarkRun(b *testing.B) {
	path, err := jail.Find(b.Context(), os.Getenv("PATH"))
	if err != nil {
		b.Fatal(err)
	}
	git := &jail.Git{Path: path, Dir: b.TempDir()}
	for b.Loop() {
		if _, err := git.Output(b.Context(), nil, 1<<10, "version"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHelpersEnd: what a git left behind when it ended by itself ends with it.
func TestHelpersEnd(t *testing.T) {
	script := filepath.Join(t.TempDir(), "git")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nsleep 1000 <&- >&- 2>&- &\necho $!\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := &jail.Bounded{Limit: 100}
	if err := (&jail.Git{Path: script, Dir: t.TempDir()}).Run(t.Context(), jail.Work{Out: out, Helpers: true}); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	const most = 10_000 // milliseconds
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, most); n != 1 {
		t.Errorf("it goes on: %v", err)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
