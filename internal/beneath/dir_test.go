package beneath_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const canaryText = "the host's\n"

// newPlanted makes a directory as a guest could leave it, and beside it what
// is the host's: a directory and a file that links lead to.
func newPlanted(t *testing.T) (d *beneath.Dir, guests, hosts string) {
	t.Helper()
	base := t.TempDir()
	guests, hosts = filepath.Join(base, "guest"), filepath.Join(base, "host")
	must(t, errors.Join(os.MkdirAll(filepath.Join(guests, "dir"), 0o755), os.Mkdir(hosts, 0o751)))
	must(t, os.WriteFile(filepath.Join(hosts, "canary"), []byte(canaryText), 0o640))
	must(t, os.WriteFile(filepath.Join(guests, "own"), nil, 0o600))
	for name, to := range map[string]string{
		"abs": hosts, "up": "../host", "file": "../host/canary", "dir/up": "../../host", "in": "dir", "none": "../host/none",
	} {
		must(t, os.Symlink(to, filepath.Join(guests, name)))
	}
	var err error
	d, err = beneath.OpenDir(guests)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d, guests, hosts
}

// unharmed says what was done to the host's.
func unharmed(t *testing.T, hosts string) {
	t.Helper()
	st, err := os.Stat(hosts)
	must(t, err)
	if st.Mode().Perm() != 0o751 {
		t.Errorf("the directory's mode is %v", st.Mode())
	}
	st, err = os.Stat(filepath.Join(hosts, "canary"))
	must(t, err)
	if st.Mode().Perm() != 0o640 {
		t.Errorf("the file's mode is %v", st.Mode())
	}
	text, err := os.ReadFile(filepath.Join(hosts, "canary"))
	must(t, err)
	if string(text) != canaryText {
		t.Errorf("the file holds %q", text)
	}
	names, err := os.ReadDir(hosts)
	must(t, err)
	if len(names) != 1 {
		t.Errorf("there are %v", names)
	}
}

// TestPlantedLinks does each thing to names that are links, or lead through
// one: none has an effect outside, and what is read is nothing of the host's.
func TestPlantedLinks(t *testing.T) {
	read := func(f *os.File, err error) error {
		if err == nil {
			f.Close()
		}
		return err
	}
	tests := []struct {
		name string
		do   func(d *beneath.Dir, at string) error
		file bool // it is done to the link to a file, too
	}{
		{name: "open", do: func(d *beneath.Dir, at string) error { return read(d.Open(at, unix.O_RDONLY)) }, file: true},
		{name: "open-for-writing", do: func(d *beneath.Dir, at string) error { return read(d.Open(at+"/canary", unix.O_WRONLY|unix.O_TRUNC)) }},
		{name: "open-dir", do: func(d *beneath.Dir, at string) error {
			sub, err := d.OpenDir(at)
			if err == nil {
				sub.Close()
			}
			return err
		}},
		{name: "read", do: func(d *beneath.Dir, at string) error { _, err := d.ReadFile(at, 1024); return err }, file: true},
		{name: "read-through", do: func(d *beneath.Dir, at string) error { _, err := d.ReadFile(at+"/canary", 1024); return err }},
		{name: "stat-through", do: func(d *beneath.Dir, at string) error { _, err := d.Stat(at + "/canary"); return err }},
		{name: "names", do: func(d *beneath.Dir, at string) error { _, err := d.Names(at); return err }},
		{name: "mkdir", do: func(d *beneath.Dir, at string) error { return d.Mkdir(at+"/new", 0o755) }},
		{name: "mkdir-all", do: func(d *beneath.Dir, at string) error { return d.MkdirAll(at+"/a/b", 0o755) }},
		{name: "mkdir-all-itself", do: func(d *beneath.Dir, at string) error { return d.MkdirAll(at, 0o755) }},
		{name: "create", do: func(d *beneath.Dir, at string) error { return read(d.Create(at+"/new", 0o600)) }},
		{name: "write", do: func(d *beneath.Dir, at string) error { return d.WriteFile(at+"/canary", []byte("x"), 0o666) }},
		{name: "rename", do: func(d *beneath.Dir, at string) error { return d.Rename("own", at+"/new", 0) }},
		{name: "rename-out", do: func(d *beneath.Dir, at string) error { return d.Rename(at+"/canary", "taken", 0) }},
		{name: "chmod", do: func(d *beneath.Dir, at string) error { return d.Chmod(at, 0o777) }, file: true},
		{name: "chown", do: func(d *beneath.Dir, at string) error { return d.Chown(at, os.Getuid(), os.Getgid()) }, file: true},
		{name: "remove", do: func(d *beneath.Dir, at string) error { return d.Remove(t.Context(), at+"/canary") }},
	}
	for _, tt := range tests {
		names := []string{"abs", "up", "dir/up", "in/up"}
		if tt.file {
			names = append(names, "file")
		}
		for _, name := range names {
			t.Run(tt.name+"/"+filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name), func(t *testing.T) {
				d, _, hosts := newPlanted(t)
				if err := tt.do(d, name); !errors.Is(err, unix.ELOOP) {
					t.Errorf("got %v, want %v", err, unix.ELOOP)
				}
				unharmed(t, hosts)
			})
		}
	}
}

// TestLinkItself: what puts something in a name's place, or takes a name away,
// does so to the link.
func TestLinkItself(t *testing.T) {
	d, guests, hosts := newPlanted(t)
	must(t, d.WriteFile("file", []byte("new"), 0o644))
	if text, err := os.ReadFile(filepath.Join(guests, "file")); string(text) != "new" {
		t.Errorf("read %q, %v", text, err)
	}
	must(t, d.WriteFile("none", []byte("new"), 0o600))
	must(t, d.Rename("own", "abs", 0))
	must(t, d.Remove(t.Context(), "up"))
	must(t, d.Remove(t.Context(), "dir"))
	must(t, beneath.RemoveAll(t.Context(), filepath.Join(guests, "in")))
	if f, err := d.Create("none", 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made %v, %v", f, err)
	}
	st, err := d.Stat("none")
	must(t, err)
	if st.Mode != unix.S_IFREG|0o600 {
		t.Errorf("mode %#o", st.Mode)
	}
	names, err := d.Names(".")
	must(t, err)
	slices.Sort(names)
	if want := []string{"abs", "file", "none"}; !slices.Equal(names, want) {
		t.Errorf("left %v, want %v", names, want)
	}
	unharmed(t, hosts)
}

// TestByPath is the control: by their paths, the same names lead to the host's.
func TestByPath(t *testing.T) {
	tests := []struct {
		name string
		do   func(guests string) error
	}{
		{"chmod", func(guests string) error { return os.Chmod(filepath.Join(guests, "abs"), 0o777) }},
		{"write", func(guests string) error { return os.WriteFile(filepath.Join(guests, "file"), nil, 0o600) }},
		{"mkdir", func(guests string) error { return os.MkdirAll(filepath.Join(guests, "in/up/a"), 0o755) }},
		{"rename", func(guests string) error {
			return os.Rename(filepath.Join(guests, "own"), filepath.Join(guests, "up/canary"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, guests, hosts := newPlanted(t)
			must(t, tt.do(guests))
			st, err := os.Stat(hosts)
			must(t, err)
			text, err := os.ReadFile(filepath.Join(hosts, "canary"))
			must(t, err)
			_, err = os.Lstat(filepath.Join(hosts, "a"))
			if st.Mode().Perm() == 0o751 && string(text) == canaryText && err != nil {
				t.Error("no link was followed")
			}
		})
	}
}

// TestNotRegular: a reader waits for no writer, and opens no device.
func TestNotRegular(t *testing.T) {
	d, guests, _ := newPlanted(t)
	must(t, unix.Mkfifo(filepath.Join(guests, "pipe"), 0o600))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	t.Chdir(guests)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
	names := []string{"pipe", "socket", "dir"}
	if unix.Mknod("device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) == nil {
		names = append(names, "device")
	}
	for _, name := range names {
		if _, err := d.ReadFile(name, 16); !errors.Is(err, beneath.ErrNotRegular) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestReadFile(t *testing.T) {
	d, guests, _ := newPlanted(t)
	must(t, os.WriteFile(filepath.Join(guests, "dir/f"), bytes.Repeat([]byte("x"), 10), 0o600))
	if b, err := d.ReadFile("dir/f", 10); err != nil || len(b) != 10 {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := d.ReadFile("dir/f", 9); !errors.Is(err, unix.EFBIG) {
		t.Errorf("got %v, want %v", err, unix.EFBIG)
	}
	if _, err := d.ReadFile("dir/none", 9); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestChange(t *testing.T) {
	d, guests, _ := newPlanted(t)
	must(t, d.MkdirAll("dir/a/b", 0o755))
	must(t, d.MkdirAll("dir/a/b", 0o755))
	must(t, d.MkdirAll(".", 0o755))
	must(t, d.Chmod("dir/a", 0o1750))
	must(t, d.WriteFile("dir/a/f", []byte("one"), 0o604))
	must(t, d.WriteFile("dir/a/f", []byte("two"), 0o604))
	must(t, d.Rename("dir/a/f", "dir/f", unix.RENAME_NOREPLACE))
	st, err := d.Stat("dir/a")
	must(t, err)
	if st.Mode != unix.S_IFDIR|0o1750 {
		t.Errorf("mode %#o", st.Mode)
	}
	st, err = d.Stat("dir/f")
	must(t, err)
	if st.Mode != unix.S_IFREG|0o604 || st.Size != 3 {
		t.Errorf("mode %#o, size %d", st.Mode, st.Size)
	}
	if err := d.Rename("dir/f", "own", unix.RENAME_NOREPLACE); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want %v", err, fs.ErrExist)
	}
	if err := d.WriteFile("dir", nil, 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	names, err := os.ReadDir(guests)
	must(t, err)
	if len(names) != 7 { // nothing is left of what failed
		t.Errorf("there are %v", names)
	}
	for _, name := range []string{".", "..", "dir/..", ""} {
		if err := d.Remove(t.Context(), name); err == nil {
			t.Errorf("%q was removed", name)
		}
	}
	must(t, d.Remove(t.Context(), "none/../nothing"))
	must(t, d.Remove(t.Context(), "nothing/there"))
	for _, name := range []string{"../host", "/etc", "dir/../../host"} {
		if _, err := d.Stat(name); !errors.Is(err, unix.EXDEV) {
			t.Errorf("%q: got %v, want %v", name, err, unix.EXDEV)
		}
	}
}

func TestRemove(t *testing.T) {
	top := t.TempDir()
	outside := filepath.Join(top, "outside")
	must(t, os.MkdirAll(filepath.Join(outside, "kept"), 0o755))
	dir := filepath.Join(top, "dir")
	for i := range 50 {
		must(t, os.MkdirAll(filepath.Join(dir, "a", fmt.Sprint(i), "b", "c"), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "a", fmt.Sprint(i), "f"), nil, 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, ".moved-1"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, ".moved-1", "x"), 0o755))
	must(t, os.Symlink(outside, filepath.Join(dir, "a", "link")))
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, beneath.RemoveAll(t.Context(), dir))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(outside, "kept")); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
	link := filepath.Join(top, "link")
	must(t, os.Symlink(outside, link))
	must(t, beneath.RemoveAll(t.Context(), link))
	must(t, beneath.RemoveAll(t.Context(), link))
	if _, err := os.Lstat(outside); err != nil {
		t.Errorf("a link was followed: %v", err)
	}
}
