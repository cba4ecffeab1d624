package disk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
)

// TestRoom fills a disk, and has the kernel find it damaged.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	image, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"mkfs.ext4", "-F", "-q", image, "16m"}, {"mount", "-o", "loop,errors=remount-ro", image, at}} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.ext4 and loop devices: %q: %v\n%s", argv, err, out)
		}
	}
	defer unix.Unmount(at, unix.MNT_DETACH)
	if disk.Full(at) || disk.ReadOnly(at) {
		t.Error("one that is new is full, or can't be written")
	}
	filler := filepath.Join(at, "filler")
	fill(t, filler)
	if !disk.Full(at) || disk.ReadOnly(at) {
		t.Error("a full one is not, or can't be written")
	}
	if err := os.Remove(filler); err != nil || disk.Full(at) {
		t.Errorf("it is full without what filled it, %v", err)
	}
	source, err := exec.Command("findmnt", "-no", "SOURCE", at).Output()
	if err != nil {
		t.Skipf("needs findmnt: %v", err)
	}
	if err := os.WriteFile("/sys/fs/ext4/"+filepath.Base(strings.TrimSpace(string(source)))+"/trigger_fs_error", []byte("1"), 0); err != nil {
		t.Skipf("needs a kernel that damages ext4 when asked: %v", err)
	}
	if !disk.ReadOnly(at) {
		t.Error("one that is damaged can be written")
	}
}

// fill writes a file until its file system takes no more. What ext4 set aside
// for data that it had not placed yet is free again once it has.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for wrote := 1; wrote > 0; {
		wrote = 0
		for err = nil; err == nil; {
			var n int
			n, err = f.Write(make([]byte, 64<<10))
			wrote += n
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}
