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
	if err := os.WriteFile(filler, make([]byte, 32<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
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
