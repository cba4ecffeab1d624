package doctor

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/landlock"
)

// probeLandlock opens a file, gives up that right, and tries once more.
func probeLandlock(io.Reader, []string) error {
	const file = "/proc/self/status"
	if f, err := os.Open(file); err != nil {
		return step("read a file before there is a rule", err)
	} else {
		f.Close()
	}
	r, err := landlock.New(unix.LandlockRulesetAttr{Handled_access_fs: unix.LANDLOCK_ACCESS_FS_READ_FILE})
	if err != nil {
		return step("make a Landlock domain", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return step("set no_new_privs", err)
	}
	if err := r.Enter(); err != nil {
		return step("enter a Landlock domain", err)
	}
	f, err := os.Open(file)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, unix.EACCES) {
		return step("have a file refused by Landlock", errors.Join(err, errNotRefused))
	}
	return nil
}
