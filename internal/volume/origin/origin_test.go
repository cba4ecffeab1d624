package origin

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// accepted is a directory as a caller was entitled to name it.
func accepted(t *testing.T, path string) sandbox.HostDir {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return sandbox.HostDir{Path: path, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid}
}

// What has the place of the directory that was accepted is not read.
func TestAnotherSource(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"directory": func(dir string) error { return os.Mkdir(dir, 0o755) },
		"link":      func(dir string) error { return os.Symlink("/etc", dir) },
		"file":      func(dir string) error { return os.WriteFile(dir, nil, 0o644) },
		"nothing":   func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "src")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			d := accepted(t, dir)
			f, err := openSource(d)
			if err != nil { // the control
				t.Fatal(err)
			}
			f.Close()
			if err := os.Rename(dir, filepath.Join(top, "was")); err != nil {
				t.Fatal(err)
			}
			if err := put(dir); err != nil {
				t.Fatal(err)
			}
			if f, err := openSource(d); sandbox.KindOf(err) != sandbox.Conflict {
				f.Close()
				t.Errorf("open: %v, want a conflict", err)
			}
		})
	}
}

// The directory is read as its owner, who is the guests' user where there is no root.
func TestReadAs(t *testing.T) {
	for _, tt := range []struct {
		name     string
		uid      uint32
		rootless bool
		want     *workspace.Identity
	}{
		{"root's", 0, false, nil},
		{"a-user's", 1234, false, &workspace.Identity{UID: 1234, GID: 1235}},
		{"without-root", 1234, true, &workspace.Identity{UID: tree.Owner, GID: tree.Owner}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := order{Volume: Volume{From: sandbox.HostDir{UID: tt.uid, GID: tt.uid + 1}}, Rootless: tt.rootless}
			got := o.readAs()
			if (got == nil) != (tt.want == nil) || got != nil && (got.UID != tt.want.UID || got.GID != tt.want.GID) {
				t.Errorf("as %+v, want %+v", got, tt.want)
			}
		})
	}
}
