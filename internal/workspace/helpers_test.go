package workspace_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/workspace"
)

func mkdirAt(d *os.File, name string) error { return unix.Mkdirat(int(d.Fd()), name, 0o755) }

func openAt(t *testing.T, d *os.File, name string) *os.File {
	t.Helper()
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	return f
}

// removeDeep removes a tree whose paths are too long for the kernel.
func removeDeep(path string) error { return exec.Command("rm", "-rf", "--", path).Run() }

// privateMounts gives the rest of a test, on this goroutine only, a mount
// namespace of its own, which is gone when the test ends.
func privateMounts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

func mount(t *testing.T, source, target, fstype, data string) {
	t.Helper()
	if err := unix.Mount(source, target, fstype, 0, data); err != nil {
		t.Skipf("mount %s: %v", fstype, err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

// The test binary runs itself to be killed, or to be someone else.
const helperEnv = "CARBOY_WORKSPACE_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "apply":
		os.Exit(helperApply(os.Args[1], os.Args[2:]))
	}
	os.Exit(3)
}

// helperApply applies streams to a base: each once, or, if there are several,
// in turn for ever, with a line before each.
func helperApply(base string, streams []string) int {
	for i := 0; ; i++ {
		b, err := os.ReadFile(streams[i%len(streams)])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		fmt.Println("applying", i)
		if err := helperApplyOne(base, b); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if len(streams) == 1 {
			return 0
		}
	}
}

func helperApplyOne(base string, stream []byte) error {
	b, err := workspace.OpenBase(base)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = workspace.Apply(context.Background(), b, bytes.NewReader(stream), workspace.ApplyOptions{})
	return err
}
