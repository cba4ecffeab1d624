package ext4_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// written are file systems that the kernel writes to, and how they are mounted.
var written = []struct{ made, mounted string }{
	{"-t ext4 -b 4096", ""},
	{"-t ext4 -b 1024", ""},
	{"-t ext4 -b 1024", "data=journal"},
	{"-t ext4 -b 1024 -O ^metadata_csum", ""},
	{"-t ext4 -b 1024 -O ^metadata_csum,^64bit", "journal_checksum"},
	{"-t ext4 -b 4096 -O ^metadata_csum", "journal_async_commit,data=writeback"},
	{"-t ext4 -b 4096 -O ^metadata_csum", "journal_async_commit,data=journal"},
	{"-t ext4 -b 4096", "data=journal"},
	{"-t ext4 -b 4096 -O inline_data", ""},
	{"-t ext4 -b 1024 -O inline_data,^64bit", "data=journal"},
	{"-t ext3 -b 1024", "data=journal"},
	{"-t ext3 -b 4096", ""},
	{"-t ext4 -b 4096 -O bigalloc", ""},
	{"-t ext4 -b 1024 -O ^dir_index", ""},
	{"-t ext4 -b 1024 -O ^filetype", ""},
	{"-t ext4 -b 2048 -O large_dir", ""},
	{"-t ext4 -b 1024 -J size=1", "data=journal"},
	{"-t ext4 -b 4096 -O orphan_file", ""},
}

// patient has the kernel commit when it is asked to, and not every five seconds.
const patient = "commit=600"

// writer does to a mounted file system what programs do, so that its journal has copies,
// revoked blocks and escaped ones.
type writer struct {
	*grower
	root string
}

func (w *writer) churn(steps int) {
	for range steps {
		dir := filepath.Join(w.root, fmt.Sprint("d", w.r.IntN(6)))
		switch w.r.IntN(6) {
		case 0: // directories that go, whose blocks become others'
			w.note(os.RemoveAll(dir))
			w.files = nil
		case 1:
			w.many(dir)
		case 2:
			w.shape(filepath.Join(w.root, fmt.Sprint("shape", w.r.IntN(5))))
		default:
			w.note(os.MkdirAll(dir, 0o755))
			w.left, w.bytes, w.files = 20, 300<<10, nil
			w.directory(dir, 10, 2)
		}
		if w.r.IntN(3) == 0 {
			w.sync()
		}
	}
}

// many makes a directory with an index, and takes names out of it.
func (w *writer) many(dir string) {
	w.note(os.MkdirAll(dir, 0o755))
	for n := range 150 {
		w.note(os.WriteFile(filepath.Join(dir, fmt.Sprintf("one-of-many-with-a-longer-name-%d", n)), []byte("x"), 0o600))
	}
	for n := 0; n < 150; n += 1 + w.r.IntN(4) {
		w.note(os.Remove(filepath.Join(dir, fmt.Sprintf("one-of-many-with-a-longer-name-%d", n))))
	}
}

// shape gives a file unwritten extents and holes, and many extents, where the file system can.
func (w *writer) shape(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		w.note(err)
		return
	}
	defer f.Close()
	fd := int(f.Fd())
	lawful := func(err error) {
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSPC) {
			w.note(err)
		}
	}
	lawful(unix.Fallocate(fd, 0, w.r.Int64N(1<<20), 1+w.r.Int64N(256<<10)))
	for range 60 {
		w.bytes = 1 << 20
		w.write(f, w.r.Int64N(2<<20), 1+w.r.Int64N(3000))
	}
	lawful(unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, w.r.Int64N(1<<20), 1+w.r.Int64N(100<<10)))
	lawful(unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE, w.r.Int64N(1<<20), 1+w.r.Int64N(100<<10)))
	if w.r.IntN(3) == 0 {
		w.note(f.Truncate(w.r.Int64N(2 << 20)))
	}
}

// sync has the journal committed, and leaves it to the kernel when blocks get to their places.
func (w *writer) sync() {
	f, err := os.Open(w.root)
	if err != nil {
		w.note(err)
		return
	}
	w.note(errors.Join(f.Sync(), f.Close()))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	run(t, "cp", "--sparse=always", from, to)
}

// TestKernelWrites: an image that the kernel wrote to is copied while it is mounted, and read with its
// journal replayed in memory: the same as the kernel reads once it has replayed it itself. Once
// it is unmounted, it reads the same too.
func TestKernelWrites(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	for n := range len(written) * max(1, trees(t)/usualTrees) {
		k := rotate(written, n)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel() // it waits for the disk
			dir := t.TempDir()
			image, crashed := filepath.Join(dir, "image"), filepath.Join(dir, "crashed")
			args := strings.Fields(k.made)
			if !strings.Contains(k.made, "-J") {
				args = append(args, "-J", "size=4")
			}
			mke2fs(t, image, "48m", args...)
			m := mount(t, image, patient+","+k.mounted)
			if m == nil {
				t.Fatalf("%s with %q can't be mounted", k.made, k.mounted)
			}
			w := &writer{newGrower(uint64(n), 0, 0), m.root}
			w.churn(16)
			w.sync()
			copyFile(t, image, crashed)
			m.Close()
			if err := errors.Join(w.errs...); err != nil {
				t.Fatal(err)
			}
			sameAsKernel(t, image, false)
			sameAsKernel(t, crashed, true)
			if t.Failed() {
				t.Logf("made by mke2fs %s, mounted with %q", k.made, k.mounted)
			}
		})
	}
}

// TestFragmented: a file in thousands of pieces has a tree of extents with several levels.
func TestFragmented(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	image := filepath.Join(t.TempDir(), "image")
	mke2fs(t, image, "48m", "-t", "ext4", "-b", "1024")
	m := mount(t, image, "")
	if m == nil {
		t.Fatal("it can't be mounted")
	}
	f, err := os.Create(filepath.Join(m.root, "pieces"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3000) {
		if _, err := f.WriteAt(fmt.Appendf(nil, "piece %d", n), n*2048); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	m.Close()
	fs := openImage(t, image)
	i, err := fs.Walk("/pieces")
	if err != nil {
		t.Fatal(err)
	}
	at, err := fs.InodeOffset(i.Number)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if depth := le.Uint16(raw[at+0x28+6:]); depth < 2 {
		t.Errorf("a depth of %d", depth)
	}
	runs := 0
	for _, err := range i.Extents() {
		if err != nil {
			t.Fatal(err)
		}
		runs++
	}
	if runs != 3000 {
		t.Errorf("%d runs, want 3000", runs)
	}
	if m = mount(t, image, "ro"); m == nil {
		t.Fatal("it can't be mounted again")
	}
	defer m.Close()
	compare(t, image, m.root, true)
}

// TestJournalMatters: without its journal, an image that was copied while it was mounted has other
// content than with it.
func TestJournalMatters(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount an image")
	}
	dir := t.TempDir()
	image, crashed := filepath.Join(dir, "image"), filepath.Join(dir, "crashed")
	mke2fs(t, image, "48m", "-t", "ext4", "-b", "1024", "-O", "^metadata_csum")
	m := mount(t, image, patient+",data=journal")
	if m == nil {
		t.Fatal("it can't be mounted")
	}
	w := &writer{newGrower(1, 0, 0), m.root}
	w.note(os.WriteFile(filepath.Join(m.root, "late"), []byte("x"), 0o600))
	w.sync()
	copyFile(t, image, crashed)
	m.Close()
	if err := errors.Join(w.errs...); err != nil {
		t.Fatal(err)
	}
	if _, err := openImage(t, crashed).Walk("/late"); err != nil {
		t.Errorf("with it: %v", err)
	}
	run(t, "debugfs", "-w", "-R", "feature -needs_recovery", crashed)
	if _, err := openImage(t, crashed).Walk("/late"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without it: %v", err)
	}
}

// sameAsKernel compares what is read of an image with what the kernel makes of a copy.
func sameAsKernel(t *testing.T, image string, unclean bool) {
	t.Helper()
	mounted := image + ".mounted"
	copyFile(t, image, mounted)
	m := mount(t, mounted, "ro")
	if m == nil {
		t.Fatal("the copy can't be mounted")
	}
	defer m.Close()
	if got := openImage(t, image).Super().Recovered; got != unclean {
		t.Errorf("the journal was replayed: %v, want %v", got, unclean)
	}
	if n := compare(t, image, m.root, true); n < 10 {
		t.Errorf("only %d entries", n)
	}
}
