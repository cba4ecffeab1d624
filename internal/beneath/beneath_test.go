package beneath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

type opener func(dir int, rel string, flags int) (int, error)

func TestOpen(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "root")
	for _, d := range []string{"elsewhere", "root/dir/sub"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"in": "dir", "out": "../elsewhere", "abs": filepath.Join(base, "elsewhere"), "slash": "/dir",
		"loop": "loop", "updown": "../root/dir", "dir/up": "..", "proc": "/proc/self/root",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	tests := []struct {
		name                     string
		path                     string
		beneath, noLinks, inRoot error
	}{
		{name: "itself", path: "."},
		{name: "below", path: "dir/sub"},
		{name: "link-inside", path: "in/sub", noLinks: unix.ELOOP},
		{name: "link-up-inside", path: "dir/up/dir", noLinks: unix.ELOOP},
		{name: "link-out", path: "out", beneath: unix.EXDEV, noLinks: unix.ELOOP, inRoot: unix.ENOENT},
		{name: "through-a-link-out", path: "out/x", beneath: unix.EXDEV, noLinks: unix.ELOOP, inRoot: unix.ENOENT},
		{name: "absolute-link", path: "abs", beneath: unix.EXDEV, noLinks: unix.ELOOP, inRoot: unix.ENOENT},
		{name: "absolute-link-of-the-root", path: "slash", beneath: unix.EXDEV, noLinks: unix.ELOOP},
		{name: "link-out-and-back", path: "updown", beneath: unix.EXDEV, noLinks: unix.ELOOP, inRoot: unix.ENOENT},
		{name: "up", path: "..", beneath: unix.EXDEV, noLinks: unix.EXDEV},
		{name: "up-and-back", path: "../root/dir", beneath: unix.EXDEV, noLinks: unix.EXDEV, inRoot: unix.ENOENT},
		{name: "up-inside", path: "dir/../dir"},
		{name: "absolute", path: "/dir", beneath: unix.EXDEV, noLinks: unix.EXDEV},
		{name: "loop", path: "loop", beneath: unix.ELOOP, noLinks: unix.ELOOP, inRoot: unix.ELOOP},
	}
	for _, tt := range tests {
		for _, o := range []struct {
			name string
			open opener
			want error
		}{
			{"beneath", beneath.Open, tt.beneath},
			{"no-links", beneath.OpenNoLinks, tt.noLinks},
			{"in-root", beneath.OpenInRoot, tt.inRoot},
		} {
			t.Run(tt.name+"/"+o.name, func(t *testing.T) {
				fd, err := o.open(dir, tt.path, unix.O_RDONLY|unix.O_DIRECTORY)
				if err == nil {
					unix.Close(fd)
				}
				if !errors.Is(err, o.want) {
					t.Errorf("open %q = %v, want %v", tt.path, err, o.want)
				}
			})
		}
	}
}

// TestPlainOpenLeaves is the control: without the guard, the link leads out.
func TestPlainOpenLeaves(t *testing.T) {
	base := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(base, "root"), 0o755), os.Symlink("..", filepath.Join(base, "root/up"))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(filepath.Join(base, "root/up/root"), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}
