package instance

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A disk that another process has mounted is no free one, and the error names that
// process. Before and after it the disk is free.
func TestHeldDisk(t *testing.T) {
	if err := disk.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	const id = "sb_held"
	at := filepath.Join(dir, id)
	if err := disk.New(filepath.Join(dir, "cache")).Make(t.Context(), filepath.Join(at, fileDisk), disk.Size{Bytes: 64 << 20, Inodes: 4096}); err != nil {
		t.Fatal(err)
	}
	b := &Backend{instances: dir, opts: Options{Log: slog.New(slog.DiscardHandler)}}
	if err := b.loose(t.Context(), id, at); err != nil {
		t.Errorf("nobody has it: %v", err)
	}
	end := mounter(t, filepath.Join(at, fileDisk))
	err := b.loose(t.Context(), id, at)
	if sandbox.KindOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "(cat), which has it mounted at ") {
		t.Errorf("while it is mounted: %v", err)
	}
	end()
	if err := b.loose(t.Context(), id, at); err != nil {
		t.Errorf("once it is not any more: %v", err)
	}
}

// mounter has a program in a mount namespace of its own, where the image is mounted.
func mounter(t *testing.T, image string) (end func()) {
	t.Helper()
	target := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cat := exec.Command("cat")
	cat.Stdin = r
	done := make(chan error)
	mount := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if _, err := disk.Mount(t.Context(), image, target, disk.Options{}); err != nil {
			return err
		}
		return cat.Start()
	}
	go onThread(func() { done <- mount() })
	err = <-done
	r.Close()
	if err != nil {
		w.Close()
		t.Fatal(err)
	}
	end = func() { _, _ = w.Close(), cat.Wait() }
	t.Cleanup(end)
	return end
}

// What a process has on a mount that is not its own is found: an open file, the directory
// that it is in. What is on its own mounts is not.
func TestForeign(t *testing.T) {
	if err := disk.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "disks", fileDisk)
	if err := disk.New(filepath.Join(dir, "cache")).Make(t.Context(), image, disk.Size{Bytes: 64 << 20, Inodes: 4096}); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "at")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Mount(t.Context(), image, target, disk.Options{}); err != nil {
		t.Fatal(err)
	}
	unmounted := false
	defer func() {
		if !unmounted {
			_ = unix.Unmount(target, unix.MNT_DETACH)
		}
	}()
	start := func(cmd *exec.Cmd, files ...*os.File) int {
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = files
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = in.Close(), cmd.Wait() })
		return cmd.Process.Pid
	}
	file, err := os.Create(filepath.Join(target, "file"))
	if err != nil {
		t.Fatal(err)
	}
	within := exec.Command("cat")
	within.Dir = target
	pids := map[string]int{"file": start(exec.Command("cat"), file), "directory": start(within)}
	nothing := start(exec.Command("cat"))
	file.Close()
	for name, pid := range pids {
		if got := foreign(pid); got != "" {
			t.Errorf("%s, mounted: got %s", name, got)
		}
	}
	unmounted = unix.Unmount(target, unix.MNT_DETACH) == nil
	for name, pid := range pids {
		if got := foreign(pid); got == "" {
			t.Errorf("%s: nothing is found", name)
		}
	}
	if got := foreign(nothing); got != "" {
		t.Errorf("without a file of it: got %s", got)
	}
}

// onThread runs f on a thread that ends with it, and its namespaces where nothing else is in
// them. It is never the process's first, which does not end.
func onThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	placed := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(placed)
		f()
	}()
	<-placed // the first is taken meanwhile
	runtime.UnlockOSThread()
}
