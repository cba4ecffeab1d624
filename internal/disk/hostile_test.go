package disk_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// TestHostileTrees: a directory that is met twice ends a listing, and what can't be read is named.
func TestHostileTrees(t *testing.T) {
	for _, tt := range []struct {
		name    string
		command []string
		kind    sandbox.Kind
		said    string
	}{
		{"in-itself", []string{"cd /workspace/src", "ln /workspace/src self"}, sandbox.Invalid, "failed to inspect workspace disk path: /workspace/src/self/: inode "},
		{"above-itself", []string{"cd /workspace/src", "ln / up"}, sandbox.Invalid, "a directory with two names"},
		{"two-names", []string{"cd /workspace", "ln /run run"}, sandbox.Invalid, "a directory with two names"},
		{"encrypted", []string{"sif /workspace/src flags 0x80800"}, sandbox.Unsupported, "failed to inspect workspace disk path: /workspace/src/: inode "},
		{"folded", []string{"sif /workspace/src flags 0x40080000"}, sandbox.Unsupported, "folds case"},
		{"damaged-link", []string{"sif /workspace/link size 0"}, sandbox.Invalid, "failed to inspect workspace disk path: /workspace/link: inode "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			image := seedImage(t)
			if _, err := disk.List(t.Context(), image, "/", true); err != nil {
				t.Fatalf("before it was changed: %v", err)
			}
			debugfs(t, image, tt.command...)
			got, err := disk.List(t.Context(), image, "/", true)
			wantError(t, err, tt.kind, tt.said)
			if got != nil {
				t.Errorf("beside the error: %s", paths(got))
			}
			if _, err := disk.Read(t.Context(), image, "/workspace/note.txt", 5); err != nil {
				t.Errorf("a file beside it: %v", err)
			}
		})
	}
}

// TestDeep: a tree may be deeper than a path of the kernel's is long.
func TestDeep(t *testing.T) {
	const levels = 60
	image, length := filepath.Join(t.TempDir(), "image"), 0
	mkfs(t, image, 16<<20)
	var commands []string
	for n := range levels {
		name := fmt.Sprintf("%0200d", n)
		commands = append(commands, "mkdir "+name, "cd "+name)
		length += 1 + len(name)
	}
	debugfs(t, image, commands...)
	got, err := disk.List(t.Context(), image, "/", true)
	if err != nil || len(got) != levels+1 || len(got[levels-1].Path) != length {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	one, err := disk.List(t.Context(), image, got[levels-1].Path, false)
	if err != nil || len(one) != 0 {
		t.Errorf("the lowest: %v, %v", one, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	image := seedImage(t)
	if _, err := disk.List(ctx, image, "/", true); !errors.Is(err, context.Canceled) {
		t.Errorf("a listing: %v", err)
	}
	if _, err := disk.Read(ctx, image, "/workspace/note.txt", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a read: %v", err)
	}
}

// TestStop: who walks may stop.
func TestStop(t *testing.T) {
	im, err := disk.Open(seedImage(t))
	if err != nil {
		t.Fatal(err)
	}
	defer im.Close()
	n := 0
	for _, err := range im.Walk(t.Context(), "/", true) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d entries", n)
	}
}
