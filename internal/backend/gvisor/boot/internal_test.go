package boot

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/internal/backend/gvisor"
)

func TestRole(t *testing.T) {
	for _, argv0 := range []string{"carboy", "/usr/bin/carboy", "boot", "gofer", "runsc", "umount", ""} {
		if Roles(nil)[argv0] != nil {
			t.Errorf("Roles()[%q] is a role", argv0)
		}
	}
	for _, argv0 := range []string{gvisor.RoleSentry, gvisor.RolePrewarmer, gvisor.RoleGofer, gvisor.RoleLauncher, roleSelf} {
		if Roles(nil)[argv0] == nil {
			t.Errorf("Roles()[%q] is none", argv0)
		}
	}
}

// TestLinksToSelf: they lead to this very program, and nobody can change them,
// root neither.
func TestLinksToSelf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := linksToSelf("one")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	self, err := os.Stat(selfExe)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/one", dir)); err != nil || !os.SameFile(st, self) {
		t.Errorf("the link leads to %v, %v", st, err)
	}
	for what, err := range map[string]error{
		"made":    unix.Symlinkat("/bin/sh", dir, "two"),
		"removed": unix.Unlinkat(dir, "one", 0),
		"opened":  unix.Fchmodat(dir, ".", 0o777, 0),
	} {
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want %v", what, err, unix.EROFS)
		}
	}
}
