package jail_test

import (
	"errors"
	"os"
	"path/filepath"
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

// What is read-only is that for commands of users and root, in the agent's own namespace, in the one that file services
// are in, and after the end of init; and it is all writable again.
func TestSetReadOnly(t *testing.T) {
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
		if err := j.SetReadOnly(dir, true); err != nil {
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
	if err := j.SetReadOnly(dir, false); err != nil {
		t.Fatal(err)
	}
	check("unlocked", "wrote")
}

// While a file is open for writing, in whatever namespace, nothing is changed in any.
func TestSetReadOnlyBusy(t *testing.T) {
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
			if err := j.SetReadOnly(dir, true); !errors.Is(err, jail.ErrBusy) {
				t.Errorf("got %v, want %v", err, jail.ErrBusy)
			}
			if got := sh(t, j, nobody, "touch "+dir+"/f && echo wrote").out; got != "wrote\n" {
				t.Errorf("a command after that: %q", got)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "g"), nil, 0o666), held.Close(), j.SetReadOnly(dir, true)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSetReadOnlyRefuses(t *testing.T) {
	j := start(t, jail.Config{})
	for _, path := range []string{playground(t), "/nowhere"} {
		if err := j.SetReadOnly(path, true); err == nil || errors.Is(err, jail.ErrBusy) {
			t.Errorf("%s: %v", path, err)
		}
	}
	j.Close()
	if err := j.SetReadOnly("/", true); err == nil {
		t.Error("a jail that is closed")
	}
}
