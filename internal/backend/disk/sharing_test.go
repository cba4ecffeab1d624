package disk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// sharer mounts an image in a mount namespace of its own, writes a file, and
// keeps the mount until its stdin ends.
func sharer() {
	image, target, name := os.Args[1], os.Args[2], os.Args[3]
	dev, err := disk.Mount(context.Background(), image, target, disk.Options{})
	if err == nil {
		err = os.WriteFile(filepath.Join(target, name), []byte(name), 0o644)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(dev)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

func TestProcessesShareOneDevice(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	target := t.TempDir()
	const n = 6
	devs := make([]string, n)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var cmds [n]*exec.Cmd
	for i := range n {
		c := exec.Command("/proc/self/exe", p, target, fmt.Sprint(i))
		c.Env = append(os.Environ(), helper+"=sharer")
		c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		c.Stdin = r
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		cmds[i] = c
		wg.Go(func() { devs[i], _ = bufio.NewReader(out).ReadString('\n') })
	}
	wg.Wait()
	if same := slices.Compact(slices.Sorted(slices.Values(devs))); len(same) != 1 || !strings.HasPrefix(same[0], "/dev/loop") {
		t.Errorf("devices = %q, want one", same)
	}
	if ents, err := os.ReadDir(target); err != nil || len(ents) != 0 {
		t.Errorf("the mounts came out of their namespaces: %v, %v", ents, err)
	}
	_ = cmds[0].Process.Kill() // one of them crashes, the others go on
	w.Close()
	for _, c := range cmds {
		_ = c.Wait()
	}
	r.Close()
	if err := disk.Detached(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("e2fsck", "-fn", p).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
	mnt := e.mount(t, p)
	for i := range n {
		if b, err := os.ReadFile(filepath.Join(mnt, fmt.Sprint(i))); string(b) != fmt.Sprint(i) {
			t.Errorf("file %d = %q, %v", i, b, err)
		}
	}
}

func TestTheDeviceKeepsTheLock(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	locked := func() bool {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB), syscall.EWOULDBLOCK)
	}
	if locked() {
		t.Error("locked before it was mounted")
	}
	target := e.mount(t, p)
	if !locked() {
		t.Error("not locked while it is mounted")
	}
	name := filepath.Join(e.dir, "other name")
	if err := os.Link(p, name); err != nil {
		t.Fatal(err)
	}
	dev, err := disk.Find(p)
	if err != nil {
		t.Fatal(err)
	}
	second := t.TempDir()
	if got, err := disk.Mount(t.Context(), name, second, disk.Options{}); err != nil || got != dev {
		t.Errorf("Mount by another name = %q, %v; want %s", got, err, dev)
	}
	for _, m := range []string{target, second} {
		if err := disk.Unmount(m); err != nil {
			t.Error(err)
		}
	}
	if err := disk.Detached(t.Context(), p); err != nil || locked() {
		t.Errorf("still locked, %v", err)
	}
}

func TestForeignDeviceIsShared(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	out, err := exec.Command("losetup", "-f", "--show", p).Output()
	if err != nil {
		t.Skip(err)
	}
	want := strings.TrimSpace(string(out))
	defer func() { _ = exec.Command("losetup", "-d", want).Run() }()
	target := t.TempDir()
	got, err := disk.Mount(t.Context(), p, target, disk.Options{})
	if err != nil || got != want {
		t.Errorf("Mount = %q, %v; want %s", got, err, want)
	}
	if err := disk.Unmount(target); err != nil {
		t.Error(err)
	}
}

func TestUnmountOfABusyDisk(t *testing.T) {
	e := setup(t)
	target := e.mount(t, e.image(t, "a.img", small))
	f, err := os.Create(filepath.Join(target, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Unmount(target); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("Unmount = %v, want conflict", err)
	}
	f.Close()
}
