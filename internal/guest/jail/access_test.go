package jail_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
	"github.com/carboy-sandbox/carboy/test/patience"
)

// mounted is a directory that is a mount of its own, for everybody to write to.
func mounted(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := playground(t)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// setReadOnly makes all of a mount read-only, or writable again.
func setReadOnly(j *jail.Jail, dir string, readOnly bool) error {
	want := jail.Access{Mount: dir}
	if readOnly {
		want.Parts = []jail.Part{{Path: dir, ReadOnly: true}}
	}
	return j.SetAccess(want, nil)
}

// What is read-only is that for commands of users and root, in the agent's own namespace, in the one that file services
// are in, and after the end of init; and it is all writable again.
func TestSetAccess(t *testing.T) {
	dir := mounted(t)
	j := start(t, jail.Config{})
	script := "touch " + dir + "/f-$(id -u) 2>/dev/null && echo wrote || echo refused"
	check := func(when, want string) {
		t.Helper()
		for name, u := range map[string]jail.User{"user": nobody, "root": {}} {
			if got := sh(t, j, u, script).out; got != want+"\n" {
				t.Errorf("%s, as %s: %q", when, name, got)
			}
		}
		for name, in := range map[string]func(func() error) error{"the agent": func(f func() error) error { return f() }, "services": j.InMountsForTest} {
			err := in(func() error { return os.WriteFile(filepath.Join(dir, "g"), nil, 0o666) })
			if (err == nil) != (want == "wrote") || err != nil && !errors.Is(err, unix.EROFS) {
				t.Errorf("%s, by %s: %v", when, name, err)
			}
		}
	}
	check("before", "wrote")
	for range 2 {
		if err := setReadOnly(j, dir, true); err != nil {
			t.Fatal(err)
		}
		check("locked", "refused")
	}
	first := j.InitPIDForTest()
	if err := j.KillInitForTest(); err != nil {
		t.Fatal(err)
	}
	if !patience.Until(10*time.Second, func() bool { return j.InitPIDForTest() != first }) {
		t.Fatal("no init came after the first")
	}
	check("locked, with another init", "refused")
	if err := setReadOnly(j, dir, false); err != nil {
		t.Fatal(err)
	}
	check("unlocked", "wrote")
}

// While a file is open for writing, in whatever namespace, nothing is changed in any.
func TestSetAccessBusy(t *testing.T) {
	for _, by := range []string{"a command", "services", "the agent"} {
		t.Run(by, func(t *testing.T) {
			dir := mounted(t)
			j := start(t, jail.Config{})
			file := filepath.Join(dir, "held")
			open := func() (f *os.File, err error) {
				f, err = os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o666)
				return f, err
			}
			var held *os.File
			var err error
			switch by {
			case "a command":
				err = j.Act(nobody, func() { held, err = open() })
			case "services":
				err = j.InMountsForTest(func() (err error) { held, err = open(); return err })
			default:
				held, err = open()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := setReadOnly(j, dir, true); !errors.Is(err, jail.ErrBusy) {
				t.Errorf("got %v, want %v", err, jail.ErrBusy)
			}
			if got := sh(t, j, nobody, "touch "+dir+"/f && echo wrote").out; got != "wrote\n" {
				t.Errorf("a command after that: %q", got)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "g"), nil, 0o666), held.Close(), setReadOnly(j, dir, true)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSetAccessRefuses(t *testing.T) {
	j := start(t, jail.Config{})
	for _, path := range []string{playground(t), "/nowhere"} {
		if err := setReadOnly(j, path, true); err == nil || errors.Is(err, jail.ErrBusy) {
			t.Errorf("%s: %v", path, err)
		}
	}
	j.Close()
	if err := setReadOnly(j, "/", true); err == nil {
		t.Error("a jail that is closed")
	}
}

// TestSetAccessParts: parts are read-only or writable within one another, for all, wherever they are looked at and after
// init's end; nothing is left of those that are no parts any more, unless somebody is in it.
func TestSetAccessParts(t *testing.T) {
	dir := mounted(t)
	if err := os.MkdirAll(dir+"/a/b/c", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/a", "/a/b", "/a/b/c"} {
		if err := os.Chmod(dir+d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	j := start(t, jail.Config{})
	written := func() string {
		return sh(t, j, nobody, "cd "+dir+"; for d in . a a/b a/b/c; do touch $d/t 2>/dev/null && printf %s: $d; rm -f $d/t; done").out
	}
	part := func(p string, readOnly bool) jail.Part {
		return jail.Part{Path: filepath.Join(dir, p), ReadOnly: readOnly}
	}
	var covered []string
	for _, step := range []struct {
		parts   []jail.Part
		want    string
		covered string
		pinned  bool // a can't be renamed
	}{
		{nil, ".:a:a/b:a/b/c:", "", false},
		{[]jail.Part{part("a/b", true)}, ".:a:", "[/a/b pin /a]", true},
		{[]jail.Part{part("a/b", true)}, ".:a:", "[]", true},
		{[]jail.Part{part("a/b", true), part("a/b/c", false)}, ".:a:a/b/c:", "[]", true},
		{[]jail.Part{part("a", true), part("a/b/c", false)}, ".:a/b/c:", "[/a]", true},
		{[]jail.Part{part(".", true), part("a", false), part("a/b", true)}, "a:", "[]", true},
		{[]jail.Part{part(".", true)}, "", "[]", true},
		{nil, ".:a:a/b:a/b/c:", "[]", false},
		{[]jail.Part{part("a/b/c", true)}, ".:a:a/b:", "[/a/b/c pin /a pin /a/b]", true},
		{nil, ".:a:a/b:a/b/c:", "[]", false},
	} {
		covered = nil
		err := j.SetAccess(jail.Access{Mount: dir, Parts: step.parts}, func(now jail.Covered) error {
			for _, d := range now.Dirs {
				covered = append(covered, d[len(dir):])
			}
			for _, d := range now.Pins {
				covered = append(covered, "pin "+d[len(dir):])
			}
			return nil
		})
		if got := sh(t, j, nobody, "cd "+dir+"; mv -T a z 2>/dev/null && mv -T z a && echo moved").out; (got == "") != step.pinned {
			t.Errorf("%v: a is renamed: %q", step.parts, got)
		}
		if got := written(); err != nil || got != step.want || step.covered != "" && fmt.Sprint(covered) != step.covered {
			t.Errorf("%v: %v, written to %q, want %q; covered %v, want %s", step.parts, err, got, step.want, covered, step.covered)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir+"/a") {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
}

// TestSetAccessUndone: where something is in the way, or a part can't be one, all is as it was.
func TestSetAccessUndone(t *testing.T) {
	dir := mounted(t)
	for _, d := range []string{"/a", "/b"} {
		if err := errors.Join(os.Mkdir(dir+d, 0o777), os.Chmod(dir+d, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("a", dir+"/link"), os.WriteFile(dir+"/file", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	j := start(t, jail.Config{})
	if err := j.SetAccess(jail.Access{Mount: dir, Parts: []jail.Part{{Path: dir + "/a", ReadOnly: true}}}, nil); err != nil {
		t.Fatal(err)
	}
	inWay := errors.New("something is in the way")
	for _, p := range []string{"/b", "/link", "/file", "/none"} {
		err := j.SetAccess(jail.Access{Mount: dir, Parts: []jail.Part{{Path: dir + p, ReadOnly: true}}}, func(jail.Covered) error { return inWay })
		if err == nil || errors.Is(err, inWay) != (p == "/b") {
			t.Errorf("%s: %v", p, err)
		}
		if got := sh(t, j, nobody, "cd "+dir+"; for d in . a b; do touch $d/t 2>/dev/null && printf %s: $d; done").out; got != ".:b:" {
			t.Errorf("%s: written to %q", p, got)
		}
	}
}
