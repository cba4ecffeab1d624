package tree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/beneath"
	"github.com/carboy-sandbox/carboy/internal/snapshot/tree"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// dirs are the places of one copy.
type dirs struct{ src, dst, links string }

func newDirs(t *testing.T) dirs {
	t.Helper()
	top := t.TempDir()
	d := dirs{filepath.Join(top, "src"), filepath.Join(top, "dst"), filepath.Join(top, "links")}
	for _, dir := range []string{d.src, d.dst, d.links} {
		must(t, os.Mkdir(dir, 0o755))
	}
	return d
}

func (d dirs) copy(t *testing.T, o tree.Options) (tree.Copied, error) {
	t.Helper()
	return tree.Copy(t.Context(), open(t, d.src), open(t, d.dst), open(t, d.links), o)
}

func (d dirs) mustCopy(t *testing.T, o tree.Options) tree.Copied {
	t.Helper()
	c, err := d.copy(t, o)
	must(t, err)
	if left, err := os.ReadDir(d.links); err != nil || len(left) > 0 {
		t.Errorf("left of links: %v, %v", left, err)
	}
	return c
}

// describe tells all that a copy keeps, a line for each file.
func describe(t *testing.T, top string) []string {
	t.Helper()
	var out []string
	inodes := map[uint64]string{}
	must(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(path, &st))
		rel, _ := filepath.Rel(top, path)
		line := fmt.Sprintf("%q %o %d:%d %d.%09d", rel, st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			raw, err := os.ReadFile(path)
			must(t, err)
			line += fmt.Sprintf(" %d bytes %x", len(raw), bytes.TrimRight(raw, "\x00"))
			if st.Nlink > 1 {
				if inodes[st.Ino] == "" {
					inodes[st.Ino] = rel
				}
				line += " as " + inodes[st.Ino]
			}
		case unix.S_IFLNK:
			to, _ := os.Readlink(path)
			line += " to " + to
		case unix.S_IFCHR:
			line = fmt.Sprintf("%q whiteout %d", rel, st.Rdev)
		}
		names := make([]byte, 4096)
		n, _ := unix.Llistxattr(path, names)
		var xattrs []string
		for name := range strings.SplitSeq(string(names[:max(n, 0)]), "\x00") {
			if name != "" {
				value := make([]byte, 4096)
				n, _ := unix.Lgetxattr(path, name, value)
				xattrs = append(xattrs, fmt.Sprintf("%s=%x", name, value[:max(n, 0)]))
			}
		}
		slices.Sort(xattrs)
		out = append(out, line+" "+strings.Join(xattrs, " "))
		return nil
	}))
	return out
}

// fill makes one of each kind of file.
func fill(t *testing.T, dir string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(in("d/e"), 0o755))
	must(t, os.WriteFile(in("d/one"), []byte("one"), 0o640))
	must(t, os.Link(in("d/one"), in("d/e/two")))
	must(t, os.Link(in("d/one"), in("three")))
	must(t, os.Symlink("/etc/passwd", in("link")))
	must(t, os.Lchown(in("link"), 12, 34))
	must(t, os.WriteFile(in("bad\xff\nname"), nil, 0o600))
	must(t, os.WriteFile(in("capable"), []byte("x"), 0o755))
	must(t, os.Chown(in("capable"), 123, 456))
	must(t, os.Chmod(in("capable"), 0o755|fs.ModeSetuid|fs.ModeSetgid))
	capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	must(t, unix.Setxattr(in("capable"), "security.capability", capability, 0))
	must(t, unix.Setxattr(in("d"), "user.note", []byte("kept\x00"), 0))
	must(t, unix.Setxattr(in("d/one"), "user.empty", nil, 0))
	must(t, unix.Mkfifo(in("pipe"), 0o622))
	must(t, unix.Mknod(in("socket"), unix.S_IFSOCK|0o777, 0))
	f, err := os.Create(in("sparse"))
	must(t, err)
	must(t, f.Truncate(8<<20))
	_, err = f.WriteAt([]byte("end"), 4<<20)
	must(t, err)
	must(t, f.Close())
	must(t, os.Chmod(in("d/e"), 0o1777))
	must(t, os.Chtimes(in("d/one"), time.Time{}, time.Unix(981173045, 123456789)))
	must(t, os.Chtimes(in("d"), time.Time{}, time.Unix(981173045, 1)))
	must(t, os.Chmod(dir, 0o750))
	must(t, os.Chown(dir, 7, 8))
}

func TestCopy(t *testing.T) {
	needRoot(t)
	d := newDirs(t)
	fill(t, d.src)
	must(t, unix.Mknod(filepath.Join(d.src, "gone"), unix.S_IFCHR, 0))
	must(t, unix.Setxattr(filepath.Join(d.src, "d"), "trusted.overlay.opaque", []byte("y"), 0))
	passwd, err := os.Stat("/etc/passwd")
	must(t, err)
	c := d.mustCopy(t, tree.Options{})
	if diff := cmp.Diff(describe(t, d.src), describe(t, d.dst)); diff != "" {
		t.Errorf("(-source +copy):\n%s", diff)
	}
	if now, err := os.Stat("/etc/passwd"); err != nil || now.Mode() != passwd.Mode() || !now.ModTime().Equal(passwd.ModTime()) {
		t.Error("what a link leads to was changed")
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(d.dst, "sparse"), &st))
	if st.Blocks*512 > 1<<20 || c.Bytes > 1<<20 || c.Bytes == 0 || c.Files != 13 || c.Devices != 0 {
		t.Errorf("%d blocks of a sparse file, %+v", st.Blocks, c)
	}
}

func TestDevicesAreLeftOut(t *testing.T) {
	needRoot(t)
	d := newDirs(t)
	must(t, unix.Mknod(filepath.Join(d.src, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	must(t, unix.Mknod(filepath.Join(d.src, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
	must(t, unix.Mknod(filepath.Join(d.src, "white"), unix.S_IFCHR, 0))
	for _, plain := range []bool{false, true} {
		d.dst = filepath.Join(t.TempDir(), "dst")
		must(t, os.Mkdir(d.dst, 0o700))
		c := d.mustCopy(t, tree.Options{Plain: plain})
		list, err := os.ReadDir(d.dst)
		must(t, err)
		want, names := int64(2), 1
		if plain { // where a whiteout is a device like any other
			want, names = 3, 0
		}
		if c.Devices != want || len(list) != names {
			t.Errorf("plain %v: %+v, %v", plain, c, list)
		}
	}
}

func TestMarks(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		o    tree.Options
		want string // "": left behind; "-": refused
	}{
		{"trusted.overlay.opaque", tree.Options{}, "trusted.overlay.opaque"},
		{"trusted.overlay.whiteout", tree.Options{}, "trusted.overlay.whiteout"},
		{"trusted.overlay.overlay.opaque", tree.Options{}, "trusted.overlay.overlay.opaque"},
		{"trusted.overlay.origin", tree.Options{}, ""},
		{"trusted.overlay.impure", tree.Options{}, ""},
		{"trusted.overlay.redirect", tree.Options{}, "-"},
		{"trusted.overlay.metacopy", tree.Options{}, "-"},
		{"trusted.overlay.new", tree.Options{}, "-"},
		{"user.overlay.opaque", tree.Options{}, "user.overlay.opaque"},
		{"user.overlay.redirect", tree.Options{UserXattr: true}, "-"},
		{"trusted.overlay.redirect", tree.Options{UserXattr: true}, "trusted.overlay.redirect"},
		{"trusted.overlay.opaque", tree.Options{Plain: true}, "trusted.overlay.overlay.opaque"},
		{"user.overlay.opaque", tree.Options{Plain: true, UserXattr: true}, "user.overlay.overlay.opaque"},
		{"user.overlay.opaque", tree.Options{Plain: true}, "user.overlay.opaque"},
		{"user.overlays", tree.Options{UserXattr: true}, "user.overlays"},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.name, tt.o), func(t *testing.T) {
			d := newDirs(t)
			must(t, os.Mkdir(filepath.Join(d.src, "d"), 0o755))
			must(t, unix.Setxattr(filepath.Join(d.src, "d"), tt.name, []byte("y"), 0))
			_, err := d.copy(t, tt.o)
			if (err != nil) != (tt.want == "-") {
				t.Fatalf("Copy = %v", err)
			}
			if err != nil {
				return
			}
			names := make([]byte, 4096)
			n, err := unix.Listxattr(filepath.Join(d.dst, "d"), names)
			must(t, err)
			want := tt.want
			if want != "" {
				want += "\x00"
			}
			if got := string(names[:n]); got != want {
				t.Errorf("attributes %q, want %q", got, want)
			}
		})
	}
}

// deep makes directories below one another.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, "deep", 0o755))
		next, err := unix.Openat(fd, "deep", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	f, err := unix.Openat(fd, "bottom", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	must(t, err)
	unix.Close(f)
	unix.Close(fd)
}

// TestDeep: no more descriptors than a few, and no path, are needed for a tree
// that is deeper than either goes.
func TestDeep(t *testing.T) {
	const levels = 1500
	d := newDirs(t)
	deep(t, d.src, levels)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = 64
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	c := d.mustCopy(t, tree.Options{})
	if c.Files != levels+2 {
		t.Errorf("%d files", c.Files)
	}
	for _, dir := range []string{d.src, d.dst} {
		if err := beneath.RemoveAll(t.Context(), dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("still there: %v", err)
		}
	}
}

func TestCopyEnds(t *testing.T) {
	d := newDirs(t)
	must(t, os.WriteFile(filepath.Join(d.src, "f"), nil, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := tree.Copy(ctx, open(t, d.src), open(t, d.dst), open(t, d.links), tree.Options{}); err == nil {
		t.Error("Copy under a context that has ended succeeded")
	}
}

// TestChanges: a tree that somebody replaces pieces of while it is copied gives
// an error or a copy, and nothing from outside.
func TestChanges(t *testing.T) {
	d := newDirs(t)
	for i := range 20 {
		must(t, os.MkdirAll(filepath.Join(d.src, fmt.Sprint(i), "sub"), 0o755))
		must(t, os.WriteFile(filepath.Join(d.src, fmt.Sprint(i), "sub", "f"), []byte("inside"), 0o600))
	}
	secret := filepath.Join(t.TempDir(), "outside")
	must(t, os.Mkdir(secret, 0o755))
	must(t, os.WriteFile(filepath.Join(secret, "f"), []byte("outside"), 0o644))
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i = (i + 1) % 20 {
			select {
			case <-stop:
				return
			default:
			}
			sub := filepath.Join(d.src, fmt.Sprint(i), "sub")
			_ = os.Rename(sub, sub+"2")
			_ = os.Symlink(secret, sub)
			_ = os.Remove(sub)
			_ = os.Rename(sub+"2", sub)
		}
	}()
	for range 30 {
		to := filepath.Join(t.TempDir(), "to")
		must(t, os.Mkdir(to, 0o755))
		_, err := tree.Copy(t.Context(), open(t, d.src), open(t, to), open(t, d.links), tree.Options{})
		if err != nil && !errors.Is(err, tree.ErrChanged) {
			t.Errorf("Copy = %v", err)
		}
		must(t, filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if raw, _ := os.ReadFile(path); string(raw) == "outside" {
					t.Fatalf("%s was copied from outside", path)
				}
			}
			return err
		}))
	}
	close(stop)
	<-done
}
