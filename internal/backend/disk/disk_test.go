package disk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/backend/disk"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// helper names the role in which the test binary was started.
const helper = "DISK_TEST_HELPER"

// TestMain runs the tests in a mount namespace of their own, so that nothing
// they mount outlives them, whatever happens.
func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "inside":
		os.Exit(m.Run())
	case "sharer":
		sharer()
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Env = append(os.Environ(), helper+"=inside")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// env is a directory for images and one to mount on.
type env struct {
	images *disk.Images
	dir    string
}

func setup(t testing.TB) env {
	t.Helper()
	if err := disk.Available(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return env{disk.New(filepath.Join(dir, "cache")), dir}
}

// image makes an image whose loop device must be gone when the test ends.
func (e env) image(t testing.TB, name string, s disk.Size) string {
	t.Helper()
	p := filepath.Join(e.dir, name)
	if err := e.images.Make(t.Context(), p, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Detached(context.WithoutCancel(t.Context()), p); err != nil {
			t.Error(err)
		}
		if dev, err := disk.Find(p); dev != "" || err != nil {
			t.Errorf("left attached to %q, %v", dev, err)
		}
	})
	return p
}

// mount mounts an image until the test ends.
func (e env) mount(t testing.TB, path string) string {
	t.Helper()
	target, err := os.MkdirTemp(e.dir, "mnt")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Mount(t.Context(), path, target, disk.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Unmount(target); err != nil {
			t.Error(err)
		}
	})
	return target
}

var small = disk.Size{Bytes: 32 << 20, Inodes: 2000}

func TestContentsStay(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	if fi, err := os.Stat(p); err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600", fi.Mode(), err)
	}
	target := e.mount(t, p)
	if err := os.WriteFile(filepath.Join(target, "f"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	dev, err := disk.Find(p)
	if err != nil || !strings.HasPrefix(dev, "/dev/loop") {
		t.Errorf("Find = %q, %v", dev, err)
	}
	checkOptions(t, target)
	for range 2 { // the second has nothing to do
		if err := disk.Unmount(target); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Detached(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if u, err := disk.ImageUsage(p); err != nil || u.NeedsRecovery || u.HostBytes > small.Bytes {
		t.Errorf("ImageUsage = %+v, %v", u, err)
	}
	if b, err := os.ReadFile(filepath.Join(e.mount(t, p), "f")); string(b) != "kept" {
		t.Errorf("read %q, %v", b, err)
	}
}

// checkOptions makes sure that the mount is as hardened as promised.
func checkOptions(t *testing.T, target string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[1] != target {
			continue
		}
		opts := strings.Split(f[3], ",")
		for _, want := range []string{"rw", "nosuid", "nodev", "noatime"} {
			if !slices.Contains(opts, want) {
				t.Errorf("options %s lack %s", f[3], want)
			}
		}
		if slices.Contains(opts, "init_itable=10") {
			t.Error("the inode tables would be written out")
		}
		return
	}
	t.Errorf("%s is not mounted", target)
}

func TestBytesRunOut(t *testing.T) {
	e := setup(t)
	for _, mib := range []int64{8, 64} { // the second is the first's control
		s := disk.Size{Bytes: mib << 20, Inodes: 100}
		target := e.mount(t, e.image(t, fmt.Sprint(mib), s))
		f, err := os.Create(filepath.Join(target, "fill"))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(f, io.LimitReader(zeros{}, 1<<30))
		if err == nil {
			err = f.Sync()
		}
		f.Close()
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%d MiB: write = %v, want ENOSPC", mib, err)
		}
		if n < s.Bytes-2<<20 || n > s.Bytes {
			t.Errorf("%d MiB: %d bytes fit", mib, n)
		}
		u, err := disk.MountUsage(target)
		if err != nil || u.FreeBytes > 1<<20 {
			t.Errorf("MountUsage = %+v, %v", u, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestInodesRunOut(t *testing.T) {
	e := setup(t)
	s := disk.Size{Bytes: 32 << 20, Inodes: 500}
	target := e.mount(t, e.image(t, "a.img", s))
	n := int64(0)
	for ; n < 10_000; n++ {
		f, err := os.Create(filepath.Join(target, fmt.Sprint(n)))
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if n != s.Inodes {
		t.Errorf("%d files fit, want %d", n, s.Inodes)
	}
	if u, err := disk.MountUsage(target); err != nil || u.FreeInodes != 0 || u.FreeBytes < s.Bytes/2 {
		t.Errorf("MountUsage = %+v, %v", u, err)
	}
}

func TestSizesHoldWhatTheyPromise(t *testing.T) {
	e := setup(t)
	for _, s := range []disk.Size{
		{disk.MinBytes, 1},
		{disk.MinBytes, disk.MaxInodes(disk.MinBytes)},
		{128 << 20, disk.MaxInodes(128 << 20)},
		{1 << 30, 1000},
		{16 << 20, 1024},
		{16 << 20, 10},
		{127 << 20, 1000},
		{129 << 20, 1000},
		{257 << 20, 8000},
		{8 << 30, 1_000_000},
		{8 << 30, 100},
		{1 << 40, 1000},
		{100 << 30, 20_000_000},
		{1 << 40, 1_000_000},
	} {
		t.Run(fmt.Sprintf("%d-%d", s.Bytes, s.Inodes), func(t *testing.T) {
			target := e.mount(t, e.image(t, fmt.Sprint(s), s))
			u, err := disk.MountUsage(target)
			if err != nil {
				t.Fatal(err)
			}
			if u.FreeBytes > s.Bytes || u.FreeBytes < s.Bytes-1<<20 {
				t.Errorf("%d bytes are free, %+d", u.FreeBytes, u.FreeBytes-s.Bytes)
			}
			if few := s.Bytes/(128<<20)*16 > 64<<10; u.FreeInodes > s.Inodes && !few || u.FreeInodes < s.Inodes-32*(s.Bytes/(128<<20)+2) {
				t.Errorf("%d inodes are free, %+d", u.FreeInodes, u.FreeInodes-s.Inodes)
			}
		})
	}
}

// TestGrow has images have more room, with what they hold.
func TestGrow(t *testing.T) {
	e := setup(t)
	for i, tt := range []struct {
		from disk.Size
		to   int64
	}{
		{disk.Size{Bytes: 16 << 20, Inodes: 1000}, 20 << 20},
		{disk.Size{Bytes: 16 << 20, Inodes: 1024}, 64 << 20},
		{disk.Size{Bytes: 16 << 20, Inodes: 1024}, 8 << 30},
		{disk.Size{Bytes: 100 << 20, Inodes: 5000}, 130 << 20},
		{disk.Size{Bytes: 1 << 30, Inodes: 70000}, 1<<30 + 4096*77},
	} {
		t.Run(fmt.Sprintf("%d-%d", tt.from.Bytes>>20, tt.to>>20), func(t *testing.T) {
			p := e.image(t, fmt.Sprint("from", tt), tt.from)
			target := e.mount(t, p)
			free, err := disk.MountUsage(target)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(target, "f"), []byte("kept"), 0o644); err != nil {
				t.Fatal(err)
			}
			grown := filepath.Join(e.dir, fmt.Sprint("to", tt))
			if i == 0 { // which is waited for
				if _, err := disk.Grow(t.Context(), p, grown, tt.from, tt.to); sandbox.KindOf(err) != sandbox.Conflict {
					t.Errorf("Grow of what is mounted = %v, want conflict", err)
				}
			}
			if err := disk.Unmount(target); err != nil {
				t.Fatal(err)
			}
			is, err := disk.Grow(t.Context(), p, grown, tt.from, tt.to)
			if err != nil || is.Bytes != tt.to || is.Inodes < tt.from.Inodes {
				t.Fatalf("Grow = %+v, %v", is, err)
			}
			if out, err := exec.Command("e2fsck", "-fn", grown).CombinedOutput(); err != nil {
				t.Errorf("e2fsck: %v\n%s", err, out)
			}
			at := e.mount(t, grown)
			u, err := disk.MountUsage(at)
			if more := u.FreeBytes - free.FreeBytes + 4096; err != nil || more > tt.to-tt.from.Bytes || more < tt.to-tt.from.Bytes-1<<20 {
				t.Errorf("%d bytes more, want %d: %v", more, tt.to-tt.from.Bytes, err)
			}
			if more := u.FreeInodes - free.FreeInodes + 1; more != is.Inodes-tt.from.Inodes {
				t.Errorf("%d files more, want %d", more, is.Inodes-tt.from.Inodes)
			}
			if b, err := os.ReadFile(filepath.Join(at, "f")); string(b) != "kept" {
				t.Errorf("read %q, %v", b, err)
			}
		})
	}
}

func TestMakeRefuses(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	for _, s := range []disk.Size{{}, {disk.MinBytes - 1, 1}, {disk.MaxBytes + 1, 1}, {disk.MinBytes, 0}, {disk.MinBytes, 1 << 40}, {-1, -1}} {
		if err := e.images.Make(t.Context(), p+"x", s); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("Make(%+v) = %v, want invalid", s, err)
		}
	}
	if err := e.images.Make(t.Context(), p, small); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("Make over an image = %v, want conflict", err)
	}
	open := filepath.Join(e.dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := e.images.Make(t.Context(), filepath.Join(open, "a"), small); sandbox.KindOf(err) != sandbox.Denied {
		t.Errorf("Make in a public directory = %v, want denied", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.images.Make(ctx, p+"y", small); !errors.Is(err, context.Canceled) {
		t.Errorf("Make = %v, want canceled", err)
	}
	names, err := filepath.Glob(filepath.Join(e.dir, "*"))
	if err != nil || len(names) != 3 { // cache, a.img, open
		t.Errorf("left: %q, %v", names, err)
	}
}

func TestMountRefuses(t *testing.T) {
	e := setup(t)
	good := e.image(t, "good.img", small)
	write := func(name string, b []byte) string {
		p := filepath.Join(e.dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	bad := slices.Clone(b)
	copy(bad[4096:8192], make([]byte, 4096)) // the group descriptors
	bad[1024+0x3FC]++                        // and the superblock's checksum
	link := filepath.Join(e.dir, "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]string{
		"garbage":   write("garbage", []byte(strings.Repeat("x", 1<<20))),
		"empty":     write("empty", nil),
		"cut-off":   write("cut", b[:1<<20]),
		"corrupted": write("corrupted", bad),
		"link":      link,
		"directory": e.dir,
		"missing":   filepath.Join(e.dir, "missing"),
	} {
		target := t.TempDir()
		if _, err := disk.Mount(t.Context(), p, target, disk.Options{}); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: Mount = %v, want an error that names the file", name, err)
			_ = disk.Unmount(target)
		}
	}
	if dev, err := disk.Find(filepath.Join(e.dir, "corrupted")); dev != "" || err != nil {
		t.Errorf("a failed mount left %q, %v", dev, err)
	}
	e.mount(t, good) // the control
}

func TestJournalIsReplayed(t *testing.T) {
	e := setup(t)
	p := e.image(t, "a.img", small)
	target := e.mount(t, p)
	f, err := os.Create(filepath.Join(target, "synced"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("here"); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	crashed := filepath.Join(e.dir, "crashed.img") // what the host's disk holds at this moment
	if out, err := exec.Command("cp", "--sparse=always", p, crashed).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	if u, err := disk.ImageUsage(crashed); err != nil || !u.NeedsRecovery {
		t.Errorf("ImageUsage = %+v, %v; want recovery", u, err)
	}
	again := e.mount(t, crashed)
	if b, err := os.ReadFile(filepath.Join(again, "synced")); string(b) != "here" {
		t.Errorf("read %q, %v", b, err)
	}
}

func TestTemplateIsMadeOnce(t *testing.T) {
	e := setup(t)
	var wg sync.WaitGroup
	for i := range 8 {
		images := e.images
		if i%2 == 0 {
			images = disk.New(filepath.Join(e.dir, "cache")) // as another process would
		}
		wg.Go(func() {
			if err := images.Make(t.Context(), filepath.Join(e.dir, fmt.Sprint(i)), small); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ents, err := os.ReadDir(filepath.Join(e.dir, "cache"))
	if err != nil || len(ents) != 1 {
		t.Errorf("cache = %v, %v; want one template", ents, err)
	}
	for i := range 8 {
		if out, err := exec.Command("e2fsck", "-fn", filepath.Join(e.dir, fmt.Sprint(i))).CombinedOutput(); err != nil {
			t.Errorf("e2fsck: %v\n%s", err, out)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	b := make([]byte, 1024)
	b[0x38], b[0x39] = 0x53, 0xEF
	f.Add(b)
	b = slices.Clone(b)
	b[0x60], b[4], b[0], b[0x18] = 0x84, 9, 8, 2
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := disk.ParseSuperblock(b)
		if err == nil && (n[1] > n[0] || n[3] > n[2] || n[0] > 1<<48) {
			t.Errorf("impossible figures: %v", n)
		}
	})
}

func BenchmarkMake(b *testing.B) {
	e := setup(b)
	s := disk.Size{Bytes: 8 << 30, Inodes: 1_000_000}
	p := filepath.Join(e.dir, "a.img")
	for b.Loop() {
		if err := e.images.Make(b.Context(), p, s); err != nil {
			b.Fatal(err)
		}
		if err := os.Remove(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMakeMountUnmount(b *testing.B) {
	e := setup(b)
	s := disk.Size{Bytes: 8 << 30, Inodes: 1_000_000}
	target := b.TempDir()
	i := 0
	for b.Loop() {
		i++
		p := filepath.Join(e.dir, fmt.Sprint(i))
		if err := e.images.Make(b.Context(), p, s); err != nil {
			b.Fatal(err)
		}
		if _, err := disk.Mount(b.Context(), p, target, disk.Options{}); err != nil {
			b.Fatal(err)
		}
		if err := disk.Unmount(target); err != nil {
			b.Fatal(err)
		}
	}
}
