package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestCreateAmidOthers: an open that makes a file where there is none finds one or makes it,
// whatever the host's programs do with its name meanwhile, and says why where it can't.
func TestCreateAmidOthers(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		s := newShares(t, newHome(t))
		s.box("one", wall)
		s.box("reads", wall, "--mount", s.dir+":"+inShare+":ro")
		one, reads := s.start("one", "creates.py", "."), s.start("reads", "creates.py", ".")
		for _, c := range comings {
			t.Run(c.name, func(t *testing.T) {
				one.t, reads.t = t, t
				defer comeAndGo(t, filepath.Join(s.dir, c.name), c.round)()
				one.opens("make", c.name, c.also, "ok")
				one.opens("creat", c.name, c.also, "ok")
				one.opens("signalled", c.name, c.also, "ok")
				one.opens("exclusive", c.name, c.also, "ok", "EEXIST")
				reads.opens("read", c.name, c.also, "ok", "EROFS")
			})
		}
		t.Run("undisturbed", func(t *testing.T) {
			one.t, reads.t = t, t
			createUndisturbed(s, one, reads)
		})
	})
}

// opens has the file of a directory opened, and wants that this comes to just that, and to all of it.
func (l *locker) opens(how, dir string, also []string, outcomes ...string) {
	l.t.Helper()
	outcomes = append(outcomes, also...)
	slices.Sort(outcomes)
	want := strings.Join(outcomes, " ")
	l.want(want, how+" "+dir+"/file 1000 "+want)
}

// comings are ways in which a file of a directory comes and goes, and what opens may come to besides.
var comings = []struct {
	name  string
	round func(dir, file string) error
	also  []string
}{
	{"made", func(_, file string) error {
		return errors.Join(os.WriteFile(file, nil, 0o666), os.Remove(file))
	}, nil},
	{"linked", func(dir, file string) error {
		return errors.Join(os.Link(filepath.Join(dir, "other"), file), os.Remove(file))
	}, nil},
	{"pointed-to", func(_, file string) error {
		return errors.Join(os.Symlink("other", file), os.Remove(file))
	}, nil},
	{"renamed", func(dir, file string) error {
		return errors.Join(os.Rename(filepath.Join(dir, "other"), file), os.Rename(file, filepath.Join(dir, "other")))
	}, nil},
	{"with-its-directory", func(dir, file string) error {
		return errors.Join(os.WriteFile(file, nil, 0o666), os.RemoveAll(dir), os.Mkdir(dir, 0o777))
	}, []string{"ENOENT"}},
}

// comeAndGo has the file of a new directory come and go until what it returns is called.
func comeAndGo(t *testing.T, dir string, round func(dir, file string) error) (end func()) {
	t.Helper()
	if err := errors.Join(os.Mkdir(dir, 0o777), os.WriteFile(filepath.Join(dir, "other"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
				_ = round(dir, filepath.Join(dir, "file")) // the sandbox makes that one, too
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// createUndisturbed has files made where nobody does anything meanwhile.
func createUndisturbed(s *shares, one, reads *locker) {
	one.t.Helper()
	for link, to := range map[string]string{
		"to-nothing": "made-by-link", "to-no-directory": "none/file", "on": "to-no-directory", "circle": "circle", "out": "/none/file",
	} {
		if err := os.Symlink(to, filepath.Join(s.dir, link)); err != nil {
			one.t.Fatal(err)
		}
	}
	long := strings.Repeat("n", 256)
	for _, w := range []struct{ asked, inside, reading string }{
		{"make none/file 2", "ENOENT", "ENOENT"},
		{"creat none/file 2", "ENOENT", "ENOENT"},
		{"exclusive none/file 2", "ENOENT", "ENOENT"},
		{"make file/file 1", "ENOTDIR", "ENOTDIR"},
		{"make " + long + " 1", "ENAMETOOLONG", "ENAMETOOLONG"},
		{"make " + long + "/file 1", "ENAMETOOLONG", "ENAMETOOLONG"},
		{"make to-no-directory 2", "ENOENT", "ENOENT"},
		{"make on 2", "ENOENT", "ENOENT"},
		{"make out 2", "ENOENT", "ENOENT"},
		{"make circle 2", "ELOOP", "ELOOP"},
		{"exclusive to-no-directory 1", "EEXIST", "EEXIST"},
		{"exclusive to-nothing 1", "EEXIST", "EEXIST"},
		{"make to-nothing 2", "ok", "EROFS"},
		{"read made-by-link 1", "ok", "ok"},
		{"creat made-by-link 1", "ok", "EROFS"},
		{"exclusive made-by-link 1", "EEXIST", "EEXIST"},
	} {
		one.want(w.inside, w.asked)
		reads.want(w.reading, w.asked)
	}
	reads.want("EROFS", "make new 1")
	one.want("ok", "exclusive new 1")
}

// TestMadeByTheirUser: whoever shares a directory may use what their user makes in it elsewhere from the first moment on.
func TestMadeByTheirUser(t *testing.T) {
	t.Parallel()
	s := newShares(t, newHome(t))
	s.box("one", "gvisor")
	s.box("native", "process")
	one, native := s.start("one", "creates.py", "."), s.start("native", "creates.py", ".")
	for _, c := range []struct{ made, used string }{{"file", "write"}, {"directory", "list"}} {
		t.Run(c.made, func(t *testing.T) {
			one.t, native.t = t, t
			seen := make(chan string)
			native.tell(c.used + " moment 20000 ok ENOENT")
			go func() {
				native.out.Scan()
				seen <- native.out.Text()
			}()
			for {
				one.want("ok", c.made+" moment 200")
				select {
				case got := <-seen:
					if got != "ENOENT ok" {
						t.Errorf("%s comes to %s", c.used, got)
					}
					return
				default:
				}
			}
		})
	}
}

// TestSetGroupDirectory: in a directory whose files go to its group, as teams share them, directories are made, and have that group.
func TestSetGroupDirectory(t *testing.T) {
	t.Parallel()
	behindEach(t, func(t *testing.T, wall string) {
		h := newHome(t)
		dir := filepath.Join(h.dir, "team")
		for _, mode := range []string{":rw", ""} {
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.Chown(dir, 1000, 60), os.Chmod(dir, 0o775|os.ModeSetgid)); err != nil {
				t.Fatal(err)
			}
			got := h.ok("run", "--isolation", wall, "--workspace", dir+mode, "--", "sh", "-c", "mkdir -p a/b && echo x >a/b/f && stat -c %A a a/b")
			if mode == "" { // a view has directories of its own
				continue
			}
			if got != "drwxr-sr-x\ndrwxr-sr-x\n" {
				t.Errorf("they are %s", got)
			}
			for _, p := range []string{"a", "a/b", "a/b/f"} {
				fi, err := os.Stat(filepath.Join(dir, p))
				if err != nil {
					t.Fatal(err)
				}
				if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != 1000 || st.Gid != 60 {
					t.Errorf("%s is of %d:%d", p, st.Uid, st.Gid)
				}
			}
		}
	})
}
