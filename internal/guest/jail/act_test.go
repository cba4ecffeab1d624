package jail_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/guest/jail"
)

// What is done as a command is allowed what a command is; the agent itself is
// allowed more.
func TestAct(t *testing.T) {
	raw := func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	for _, strict := range []bool{false, true} {
		j := start(t, jail.Config{Strict: strict, PIDNamespace: true, Hide: []string{hidden(t)}})
		if err := raw(); err != nil {
			t.Skip("the test itself may not:", err)
		}
		var err error
		var uid int
		if e := j.Act(nobody, func() { err, uid = raw(), unix.Geteuid() }); e != nil {
			t.Fatal(e)
		}
		if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAFNOSUPPORT) || uid != int(nobody.UID) {
			t.Errorf("strict %v: %v as user %d", strict, err, uid)
		}
		if err := j.Act(jail.User{}, func() { t.Error("root acts") }); err == nil {
			t.Error("no error for root")
		}
		r, err := run(t, j, jail.Command{Argv: []string{"id", "-u"}, User: nobody, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}})
		if err != nil || r.out != "1000\n" {
			t.Errorf("a command afterwards: %+v, %v", r, err)
		}
	}
}
