package quota_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/test/long"
)

func openDir(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// roomy is a directory in which many files are soon made.
func roomy(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "carboy-quota-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func put(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func scan(t testing.TB, dir string, l quota.Limits) quota.Usage {
	t.Helper()
	u, err := quota.Scan(t.Context(), openDir(t, dir), l)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestScan(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	put(t, dir+"/a", 100)
	put(t, dir+"/b/c/d", 1000)
	put(t, dir+"/b/.hidden", 10)
	put(t, outside+"/big", 1<<30)
	for name, err := range map[string]error{
		"a link to a file":      os.Symlink(outside+"/big", dir+"/to-big"),
		"a link to a directory": os.Symlink(outside, dir+"/b/out"),
		"a link to the root":    os.Symlink("../..", dir+"/b/c/up"),
		"a second name":         os.Link(dir+"/b/c/d", dir+"/again"),
		"a pipe":                unix.Mkfifo(dir+"/pipe", 0o600),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	links := int64(len(outside+"/big") + len(outside) + len("../.."))
	u := scan(t, dir, quota.Limits{})
	if u.Bytes != 1110+links || u.Entries != 10 || u.Over() {
		t.Errorf("%+v, want %d bytes", u, 1110+links)
	}
	t.Run("over-bytes", func(t *testing.T) {
		if u := scan(t, dir, quota.Limits{Bytes: 1110 + links - 1}); !u.OverBytes || u.OverEntries {
			t.Errorf("%+v", u)
		}
		if u := scan(t, dir, quota.Limits{Bytes: 1110 + links}); u.Over() {
			t.Errorf("at the limit: %+v", u)
		}
	})
	t.Run("over-entries", func(t *testing.T) {
		if u := scan(t, dir, quota.Limits{Entries: 9}); !u.OverEntries || u.OverBytes || u.Entries != 10 {
			t.Errorf("%+v", u)
		}
		if u := scan(t, dir, quota.Limits{Entries: 10}); u.Over() {
			t.Errorf("at the limit: %+v", u)
		}
	})
	t.Run("the-end-of-its-time", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := quota.Scan(ctx, openDir(t, dir), quota.Limits{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A file of holes counts as what it says it is.
func TestScanOfHoles(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		path := fmt.Sprintf("%s/%d", dir, i)
		put(t, path, 0)
		if err := os.Truncate(path, 8<<40); err != nil {
			t.Skipf("needs a file system that has files of 8 TiB: %v", err)
		}
	}
	if u := scan(t, dir, quota.Limits{Bytes: 1 << 20}); !u.OverBytes || u.Bytes <= 0 {
		t.Errorf("%+v", u)
	}
}

func TestScanStaysOnItsFileSystem(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	put(t, dir+"/here", 7)
	for _, name := range []string{"tmpfs", "bind"} {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		other := t.TempDir()
		put(t, other+"/there", 1000)
		if name == "bind" { // the same device
			if err := unix.Mount(other, at, "", unix.MS_BIND, ""); err != nil {
				t.Skipf("needs the right to mount: %v", err)
			}
		} else if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
			t.Skipf("needs the right to mount: %v", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		if name == "tmpfs" {
			put(t, at+"/there", 1000)
		}
	}
	if u := scan(t, dir, quota.Limits{}); u.Bytes != 7 {
		t.Errorf("%+v", u)
	}
}

// deep makes directories in one another, each with a file beside the next,
// and removes them from below: no path is that long.
func deep(t testing.TB, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"c", "e"} { // before and after it in any order
			f, err := unix.Openat(fd, name, unix.O_CREAT|unix.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = unix.Write(f, []byte("x"))
			_ = unix.Close(f)
		}
		next, err := unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
}

func TestScanOfADeepTree(t *testing.T) {
	dir := roomy(t)
	const levels = 10_000
	deep(t, dir, levels)
	before := descriptors(t)
	most := 0
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
			select {
			case <-done:
				tick.Stop()
				return
			default:
				most = max(most, descriptors(t))
			}
		}
	})
	u := scan(t, dir, quota.Limits{})
	close(done)
	watching.Wait()
	if u.Bytes != 2*levels || u.Entries != 3*levels || u.Over() {
		t.Errorf("%+v", u)
	}
	if most > before+200 {
		t.Errorf("%d descriptors were open, %d before", most, before)
	}
}

func descriptors(t testing.TB) int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	return len(d)
}

// What moves about while it is counted makes a scan neither fail, nor hang,
// nor leave the tree.
func TestScanUnderRenames(t *testing.T) {
	dir, outside := roomy(t), t.TempDir()
	put(t, outside+"/big", 1<<40)
	for i := range 20 {
		deep(t, mkdir(t, fmt.Sprintf("%s/%d", dir, i)), 200)
	}
	put(t, dir+"/far", 1)
	stop := make(chan struct{})
	var moving sync.WaitGroup
	for n := range 2 {
		moving.Go(func() {
			for i := n; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a, b := fmt.Sprintf("%s/%d/d/d", dir, i%20), fmt.Sprintf("%s/moved-%d", dir, n)
				_ = os.Rename(a, b)
				_ = os.Symlink(outside, a)
				_ = os.Remove(a)
				_ = os.Rename(b, fmt.Sprintf("%s/%d/d/d", dir, (i+7)%20))
			}
		})
	}
	for range long.Rounds(10, 30) {
		u, err := quota.Scan(t.Context(), openDir(t, dir), quota.Limits{Bytes: 1 << 30})
		if err != nil || u.OverBytes {
			t.Errorf("%+v, %v", u, err)
		}
	}
	close(stop)
	moving.Wait()
}

func mkdir(t testing.TB, path string) string {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// many makes n empty files in directories of 1,000.
func many(t testing.TB, dir string, n int) {
	t.Helper()
	for i := range n {
		if i%1000 == 0 {
			mkdir(t, fmt.Sprintf("%s/%d", dir, i/1000))
		}
		fd, err := unix.Open(fmt.Sprintf("%s/%d/%d", dir, i/1000, i), unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
	}
}

func TestScanOfManyEntries(t *testing.T) {
	dir := roomy(t)
	many(t, dir, 100_000)
	u := scan(t, dir, quota.Limits{})
	if !u.OverEntries || u.Entries != quota.DefaultEntries+1 {
		t.Errorf("%+v", u)
	}
	if u := scan(t, dir, quota.Limits{Entries: 200_000}); u.Over() || u.Entries != 100_100 {
		t.Errorf("%+v", u)
	}
}

// Who may not read a directory can't count it, and says so. Root may.
func TestScanOfWhatCantBeRead(t *testing.T) {
	dir := roomy(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/hidden/f", 10)
	if err := os.Chmod(dir+"/hidden", 0); err != nil {
		t.Fatal(err)
	}
	root := openDir(t, dir)
	if os.Getuid() == 0 {
		if u := scan(t, dir, quota.Limits{}); u.Bytes != 10 {
			t.Errorf("as root: %+v", u)
		}
	}
	done := make(chan error)
	go func() { // the thread is not used again
		runtime.LockOSThread()
		if os.Getuid() == 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 1000, 0, 0)
		}
		_, err := quota.Scan(t.Context(), root, quota.Limits{})
		done <- err
	}()
	if err := <-done; sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), `"hidden"`) {
		t.Errorf("as nobody: %v", err)
	}
}

func TestCheck(t *testing.T) {
	l := quota.Limits{Bytes: 1 << 20, Entries: 5}
	for name, c := range map[string]struct {
		when string
		u    quota.Usage
		want string
	}{
		"within": {quota.Before, quota.Usage{Bytes: 1 << 20, Entries: 5}, ""},
		"before": {
			quota.Before,
			quota.Usage{Bytes: 2 << 20, OverBytes: true},
			"workspace quota exceeded before execution: used=2097152 bytes limit=1048576 bytes host_path=/srv/x session_id=s",
		},
		"after": {
			quota.After,
			quota.Usage{Bytes: 2 << 20, OverBytes: true},
			"workspace quota exceeded after execution: used=2097152 bytes limit=1048576 bytes host_path=/srv/x session_id=s",
		},
		"entries": {
			quota.After,
			quota.Usage{Entries: 6, OverEntries: true},
			"workspace entry limit exceeded after execution: entries>5 host_path=/srv/x session_id=s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := quota.Check(c.when, c.u, l, "/srv/x", "s")
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != c.want || sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%v", err)
			}
			if e, ok := errors.AsType[*quota.ExceededError](err); !ok || e.When != c.when {
				t.Errorf("its cause is %v", e)
			}
		})
	}
	err := quota.Check(quota.During, quota.Usage{Unsteady: true}, l, "/srv/x", "s")
	if err == nil || !strings.HasPrefix(err.Error(), "workspace entry limit exceeded after execution was stopped: ") {
		t.Error(err)
	}
}
