package project_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/session/quota/project"
)

// systemsEnv has the file systems that enforce projects, as name=directory,…:
// test/vm boots a machine with some.
const systemsEnv = "CARBOY_PROJECT_SYSTEMS"

const mib = 1 << 20

func isUnfit(err error, none bool) bool {
	u, ok := errors.AsType[*project.UnfitError](err)
	return ok && u.None == none
}

// onEach runs a test on each file system there is, in a directory of its own.
func onEach(t *testing.T, test func(t *testing.T, c *project.Control, dir string)) {
	list := os.Getenv(systemsEnv)
	if list == "" {
		t.Skip(systemsEnv + " names no file system with project quotas: test/vm has some")
	}
	for s := range strings.SplitSeq(list, ",") {
		name, at, _ := strings.Cut(s, "=")
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp(at, "test-*")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			test(t, new(project.Control), dir)
		})
	}
}

func openDir(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// tree makes one with a bit of all, of whoever writes in it.
func tree(t *testing.T, at string) string {
	t.Helper()
	root := filepath.Join(at, "root")
	for _, d := range []string{"", "a", "a/b", "a/b/c"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, d, "file"), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Link(filepath.Join(root, "file"), filepath.Join(root, "a/b/same")), os.Symlink("/etc", filepath.Join(root, "link")),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600),
		filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Lchown(p, 1000, 1000)) }),
	)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// fill has a user write files until there is no room, and returns how many bytes
// there was room for.
func fill(t *testing.T, dir string, most int) (written int, end error) {
	t.Helper()
	return helped(t, nil, "fill", dir, fmt.Sprint(most))
}

// helped runs this binary as a user, who has no rights of root.
func helped(t *testing.T, attr *syscall.SysProcAttr, args ...string) (n int, end error) {
	t.Helper()
	if attr == nil {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = append(os.Environ(), helperEnv+"=1"), attr, t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	var errno int
	if _, err := fmt.Sscan(string(out), &n, &errno); err != nil {
		t.Fatalf("%q wrote %q", args, out)
	}
	if errno != 0 {
		end = syscall.Errno(errno)
	}
	return n, end
}

func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

func TestProjects(t *testing.T) {
	for _, tt := range []struct {
		name string
		test func(t *testing.T, c *project.Control, dir string)
	}{
		{"bytes", holdsBytes},
		{"by-device", func(t *testing.T, _ *project.Control, dir string) { holdsBytes(t, project.ByDevice(), dir) }},
		{"inodes", holdsInodes},
		{"left-alone", leftAlone},
		{"half-done", halfDone},
		{"side-by-side", sideBySide},
		{"large", large},
	} {
		t.Run(tt.name, func(t *testing.T) { onEach(t, tt.test) })
	}
}

func holdsBytes(t *testing.T, c *project.Control, dir string) {
	root := tree(t, dir)
	f := openDir(t, root)
	id, err := c.Take(t.Context(), f, 100)
	if err != nil || id < project.First {
		t.Fatalf("Take = %x, %v", id, err)
	}
	for _, p := range []string{"", "a", "a/b/c", "file", "a/b/c/file"} {
		if is, inherits, err := project.ProjectOf(openDir(t, filepath.Join(root, p))); err != nil || is != id || inherits != !strings.HasSuffix(p, "file") {
			t.Errorf("%q is of project %x, %v, %v", p, is, inherits, err)
		}
	}
	if n, err := fill(t, root, 6*mib); n != 6*mib || err != nil {
		t.Errorf("without a limit: wrote %d, %v", n, err)
	}
	empty(t, root)
	for range 2 { // set, and found set
		if u, err := c.Hold(f, id, project.Limits{Bytes: 4 * mib}); err != nil || u.Inodes < 5 {
			t.Fatalf("Hold = %+v, %v", u, err)
		}
	}
	n, err := fill(t, root, 6*mib)
	t.Logf("of 4 MiB: %d bytes, then %v", n, err)
	if n > 4*mib || n < 3*mib+mib/2 || !full(err) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if n, err := fill(t, dir, 6*mib); n != 6*mib || err != nil {
		t.Errorf("beside it: wrote %d, %v", n, err)
	}
	u, err := c.Hold(f, id, project.Limits{Bytes: 4 * mib})
	if err != nil || u.Bytes < 3*mib+mib/2 || u.Bytes > 4*mib {
		t.Errorf("Hold = %+v, %v", u, err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || int64(st.Blocks)*st.Bsize > 4*mib || int64(st.Bavail)*st.Bsize > mib {
		t.Errorf("it seems to have %d, with %d free: %v", int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize, err)
	}
	empty(t, root)
	if n, err := fill(t, root, mib); n != mib || err != nil {
		t.Errorf("emptied: wrote %d, %v", n, err)
	}
	if again, err := c.Take(t.Context(), f, 100); again != id || err != nil {
		t.Errorf("Take again = %x, %v", again, err)
	}
	if err := errors.Join(c.Lift(openDir(t, dir), id), c.Lift(f, id)); err != nil {
		t.Errorf("Lift: %v", err)
	}
	if n, err := fill(t, root, 6*mib); n != 6*mib || err != nil {
		t.Errorf("lifted: wrote %d, %v", n, err)
	}
}

// empty deletes what fill wrote.
func empty(t *testing.T, dir string) {
	t.Helper()
	list, _ := filepath.Glob(filepath.Join(dir, "fill-*"))
	for _, p := range list {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

func holdsInodes(t *testing.T, c *project.Control, dir string) {
	f := openDir(t, dir)
	id, err := c.Take(t.Context(), f, 100)
	if err == nil {
		_, err = c.Hold(f, id, project.Limits{Inodes: 11})
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := helped(t, nil, "files", dir, "50"); n != 10 || !full(err) {
		t.Errorf("made %d, %v", n, err)
	}
}

func leftAlone(t *testing.T, c *project.Control, dir string) {
	for _, tt := range []struct {
		name, why string
		do        func(root string) error
		most      int
	}{
		{"foreign", "is of project 7,", func(root string) error {
			f := openDir(t, root+"/a/b")
			return project.Move(f, 7, true)
		}, 100},
		{"foreign-file", "is of project 8,", func(root string) error { return project.Move(openDir(t, root+"/a/file"), 8, false) }, 100},
		{"foreign-root", "is of project 9,", func(root string) error { return project.Move(openDir(t, root), 9, true) }, 100},
		{"another-name", "another name outside", func(root string) error { return os.Link(root+"/a/file", root+".name") }, 100},
		{"mount", "something is mounted in it", func(root string) error {
			t.Cleanup(func() { _ = unix.Unmount(root+"/a/b", 0) })
			return unix.Mount("tmp", root+"/a/b", "tmpfs", 0, "")
		}, 100},
		{"bind", "something is mounted in it", func(root string) error {
			t.Cleanup(func() { _ = unix.Unmount(root+"/a/b/c", 0) })
			return unix.Mount(root+"/a", root+"/a/b/c", "", unix.MS_BIND, "")
		}, 100},
		{"large", "more than 3 files", func(string) error { return nil }, 3},
		{"copied", "is of project", func(root string) error { // with its note, and its mark
			if err := os.Mkdir(dir+"/original", 0o755); err != nil {
				return err
			}
			f := openDir(t, dir+"/original")
			id, err := c.Take(t.Context(), f, 100)
			var st unix.Stat_t
			return errors.Join(err, unix.Fstat(int(f.Fd()), &st), project.Move(openDir(t, root), id, true),
				unix.Setxattr(root, project.NoteName, []byte(project.WriteNote(id, st.Ino, true)), 0))
		}, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := filepath.Join(dir, tt.name)
			if err := os.Mkdir(at, 0o755); err != nil {
				t.Fatal(err)
			}
			root := tree(t, at)
			if err := tt.do(root); err != nil {
				t.Fatal(err)
			}
			_, err := c.Take(t.Context(), openDir(t, root), tt.most)
			if !isUnfit(err, false) || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("Take = %v", err)
			}
			if is, _, err := project.ProjectOf(openDir(t, root+"/file")); err != nil || is != 0 {
				t.Errorf("a file in it is of project %x, %v", is, err)
			}
		})
	}
	t.Run("nested", func(t *testing.T) {
		root := filepath.Join(dir, "nested")
		if err := os.MkdirAll(root+"/in", 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Take(t.Context(), openDir(t, root), 100); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Take(t.Context(), openDir(t, root+"/in"), 100); !isUnfit(err, false) {
			t.Errorf("Take of what is in a project = %v", err)
		}
	})
}

// halfDone has a daemon die on the way, and the next one go on.
func halfDone(t *testing.T, c *project.Control, dir string) {
	for _, marked := range []bool{false, true} {
		at := filepath.Join(dir, fmt.Sprint(marked))
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		root := tree(t, at)
		f := openDir(t, root)
		begun, err := project.Begin(t.Context(), f, marked)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := fill(t, root, mib); n != mib || err != nil {
			t.Errorf("begun: wrote %d, %v", n, err)
		}
		id, err := c.Take(t.Context(), f, 100)
		if err != nil || id != begun || c.Of(f) != id {
			t.Errorf("Take = %x, %v, of %x", id, err, begun)
		}
		if is, _, err := project.ProjectOf(openDir(t, root+"/a/b/c/file")); err != nil || is != id {
			t.Errorf("a file in it is of project %x, %v", is, err)
		}
	}
	// One that was stopped leaves nothing.
	at := filepath.Join(dir, "stopped")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	root := tree(t, at)
	f := openDir(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Take(ctx, f, 100); !errors.Is(err, context.Canceled) {
		t.Errorf("Take = %v", err)
	}
	if is, _, err := project.ProjectOf(f); is != 0 || err != nil || c.Of(f) != 0 {
		t.Errorf("it is of project %x, %v", is, err)
	}
	// One that an operator took out is said to be none.
	id, err := c.Take(t.Context(), f, 100)
	if err == nil {
		err = project.Move(f, 0, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Hold(f, id, project.Limits{Bytes: mib}); !isUnfit(err, false) {
		t.Errorf("Hold = %v", err)
	}
	if again, err := c.Take(t.Context(), f, 100); again != id || err != nil {
		t.Errorf("Take = %x, %v", again, err)
	}
}

func sideBySide(t *testing.T, c *project.Control, dir string) {
	root := tree(t, dir)
	ids, errs := make([]uint32, 8), make([]error, 8)
	var all sync.WaitGroup
	for n := range ids {
		f := openDir(t, root)
		all.Go(func() { ids[n], errs[n] = c.Take(t.Context(), f, 100) })
	}
	all.Wait()
	for n, id := range ids {
		if errs[n] != nil || id != ids[0] {
			t.Fatalf("%x, %v", ids, errs)
		}
	}
}

func large(t *testing.T, c *project.Control, dir string) {
	for d := range 10 {
		at := fmt.Sprintf("%s/%d", dir, d)
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/%d", at, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := openDir(t, dir)
	for _, how := range []string{"first", "again"} {
		from := time.Now()
		if _, err := c.Take(t.Context(), f, 0); err != nil {
			t.Error(err)
		}
		t.Logf("%s: %v for 1000 files", how, time.Since(from))
	}
}
