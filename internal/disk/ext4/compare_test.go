package ext4_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/disk/ext4"
)

// comparison is of what this package reads with what the host's kernel does, of the mounted image or
// of the tree that it was made from.
type comparison struct {
	t       *testing.T
	fs      *ext4.FS
	mounted bool // inode numbers, times and counts are the same
	entries int
}

// directory compares one and all below it.
func (c *comparison) directory(dir *ext4.Inode, host string) {
	c.t.Helper()
	ours := map[string]ext4.Entry{}
	for e, err := range dir.Entries() {
		if err != nil {
			c.t.Errorf("%q: %v", host, err)
			return
		}
		if _, ok := ours[e.Name]; ok {
			c.t.Errorf("%q has %q twice", host, e.Name)
		}
		ours[e.Name] = e
	}
	f, err := os.Open(host)
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close() // it was read only
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range names {
		e, ok := ours[name]
		if !ok {
			c.t.Errorf("%q lacks %q", host, name)
			continue
		}
		delete(ours, name)
		c.entries++
		i, err := c.fs.Inode(e.Inode)
		if err != nil {
			c.t.Errorf("%q: %v", filepath.Join(host, name), err)
			continue
		}
		if e.Type != ext4.None && e.Type != i.Type() {
			c.t.Errorf("%q is of type %d, and its name of type %d", filepath.Join(host, name), i.Type(), e.Type)
		}
		c.inode(i, filepath.Join(host, name))
	}
	for name := range ours {
		if name != "lost+found" || c.mounted {
			c.t.Errorf("%q has %q besides", host, name)
		}
	}
}

func (c *comparison) inode(i *ext4.Inode, host string) {
	c.t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(host, &st); err != nil {
		c.t.Fatal(err)
	}
	got := fmt.Sprintln(i.Mode, i.UID, i.GID, i.Modified.Unix())
	want := fmt.Sprintln(st.Mode, st.Uid, st.Gid, st.Mtim.Sec)
	if c.mounted {
		major, minor := i.Device()
		got += fmt.Sprintln(i.Number, i.Links, i.Modified.UnixNano(), i.Changed.UnixNano(), major, minor)
		want += fmt.Sprintln(st.Ino, st.Nlink, time.Unix(st.Mtim.Unix()).UnixNano(), time.Unix(st.Ctim.Unix()).UnixNano(), unix.Major(st.Rdev), unix.Minor(st.Rdev))
	}
	if i.Type() != ext4.Directory {
		got, want = got+fmt.Sprintln(i.Size), want+fmt.Sprintln(st.Size)
	}
	if got != want {
		c.t.Errorf("%q is\n%s, want\n%s", host, got, want)
	}
	switch i.Type() {
	case ext4.Directory:
		c.directory(i, host)
	case ext4.Symlink:
		target, err := i.Readlink()
		if want, _ := os.Readlink(host); err != nil || target != want {
			c.t.Errorf("%q leads to %q, %v, want %q", host, target, err, want)
		}
	case ext4.Regular:
		c.content(i, host)
		c.xattr(i, host)
	}
}

func (c *comparison) xattr(i *ext4.Inode, host string) {
	buf := make([]byte, 1024)
	n, err := unix.Lgetxattr(host, "user.mark", buf)
	got, ok, failed := i.Xattr("user.mark")
	if ok != (err == nil) || failed != nil || ok && !bytes.Equal(got, buf[:n]) {
		c.t.Errorf("%q has the attribute %q, %v, %v, want %q, %v", host, got, ok, failed, buf[:max(n, 0)], err)
	}
}

// content compares that of a file, but only the host's data of one that is large.
func (c *comparison) content(i *ext4.Inode, host string) {
	c.t.Helper()
	ours, err := i.Open()
	if err != nil {
		c.t.Errorf("%q: %v", host, err)
		return
	}
	theirs, err := os.Open(host)
	if err != nil {
		c.t.Fatal(err)
	}
	defer theirs.Close()
	if i.Size > 64<<20 {
		c.parts(i, ours, theirs)
		return
	}
	a, b := make([]byte, 192<<10), make([]byte, 192<<10)
	for at := int64(0); ; {
		n, err := ours.Read(a)
		m, _ := io.ReadFull(theirs, b[:n])
		if n != m || !bytes.Equal(a[:n], b[:m]) || err != nil && err != io.EOF {
			c.t.Errorf("%q differs from byte %d on: %d bytes, %v", host, at, n, err)
			return
		}
		if at += int64(n); err == io.EOF {
			break
		}
	}
	if n, _ := theirs.Read(b); n > 0 {
		c.t.Errorf("%q is longer", host)
	}
}

// parts compares the host's data, and that all data of ours is there or zero.
func (c *comparison) parts(i *ext4.Inode, ours io.ReaderAt, theirs *os.File) {
	c.t.Helper()
	size := int64(c.fs.Super().BlockSize)
	check := func(from, to int64) {
		a, b := make([]byte, to-from), make([]byte, to-from)
		n, err := ours.ReadAt(a, from)
		m, err2 := theirs.ReadAt(b, from)
		if n != m || !bytes.Equal(a, b) {
			c.t.Errorf("%q differs from byte %d to %d: %d, %v and %d, %v", theirs.Name(), from, to, n, err, m, err2)
		}
	}
	for at := int64(0); ; {
		from, err := unix.Seek(int(theirs.Fd()), at, unix.SEEK_DATA)
		if err != nil {
			break
		}
		if at, err = unix.Seek(int(theirs.Fd()), from, unix.SEEK_HOLE); err != nil {
			c.t.Fatal(err)
		}
		check(from, at)
	}
	for e, err := range i.Extents() {
		if err != nil {
			c.t.Errorf("%q: %v", theirs.Name(), err)
			return
		}
		if from, to := int64(e.Logical)*size, int64(e.Logical+e.Blocks)*size; from < i.Size {
			check(from, min(to, i.Size))
		}
	}
}

func openImage(t *testing.T, image string) *ext4.FS {
	t.Helper()
	f, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it is read only
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	fs, err := ext4.Open(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// compare compares all of an image, and returns how many entries there are.
func compare(t *testing.T, image, host string, mounted bool) int {
	t.Helper()
	c := &comparison{t: t, fs: openImage(t, image), mounted: mounted}
	root, err := c.fs.Root()
	if err != nil {
		t.Fatal(err)
	}
	c.directory(root, host)
	return c.entries
}

// rotate returns the nth of a list, and round again.
func rotate[T any](list []T, n int) T { return list[n%len(list)] }
