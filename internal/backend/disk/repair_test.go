package disk_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestRepair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image")
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", path, "16m").CombinedOutput(); err != nil {
		t.Skipf("needs mkfs.ext4: %v, %s", err, out)
	}
	noteError := func() { // as the kernel does
		t.Helper()
		if out, err := exec.Command("debugfs", "-w", "-R", "ssv state 3", path).CombinedOutput(); err != nil {
			t.Fatalf("debugfs: %v, %s", err, out)
		}
	}
	note := func(at int64, b ...byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteAt(b, at)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if mended, err := disk.Repair(t.Context(), path); mended || err != nil {
		t.Errorf("a sound one: %t, %v", mended, err)
	}
	noteError()
	if mended, err := disk.Repair(t.Context(), path); !mended || err != nil {
		t.Errorf("one with an error noted: %t, %v", mended, err)
	}
	if mended, err := disk.Repair(t.Context(), path); mended || err != nil {
		t.Errorf("a mended one: %t, %v", mended, err)
	}
	noteError()
	note(4096, make([]byte, 256<<10)...) // its group descriptors and tables
	if _, err := disk.Repair(t.Context(), path); err == nil || sandbox.KindOf(err) != sandbox.Internal {
		t.Errorf("one that is beyond that: %v", err)
	}
}
