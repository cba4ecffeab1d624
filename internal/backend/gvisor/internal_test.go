package gvisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRole(t *testing.T) {
	for _, argv0 := range []string{"carboy", "/usr/bin/carboy", "boot", "gofer", "runsc", "umount", ""} {
		if Roles(nil)[argv0] != nil {
			t.Errorf("Roles()[%q] is a role", argv0)
		}
	}
	for _, argv0 := range []string{roleSentry, rolePrewarmer, roleGofer, roleLauncher, roleSelf} {
		if Roles(nil)[argv0] == nil {
			t.Errorf("Roles()[%q] is none", argv0)
		}
	}
}

func TestCPUCount(t *testing.T) {
	for _, tt := range []struct {
		quota int64
		want  int
	}{{10_000, 2}, {100_000, 2}, {200_000, 2}} {
		if got := cpuCount(tt.quota, cpuPeriod); got != tt.want {
			t.Errorf("cpuCount(%d) = %d, want %d", tt.quota, got, tt.want)
		}
	}
}

// TestAfterPrewarmer: only gVisor's own command line is taken apart.
func TestAfterPrewarmer(t *testing.T) {
	whole := []string{"/proc/self/fd/230/gvisor-sentry-prewarmer", "/proc/self/fd/230/gvisor_sentry", roleSentry, "--root=/b/runsc", "boot"}
	for _, tt := range []struct {
		name string
		args []string
		want int // arguments that go
	}{
		{"whole", whole, 2},
		{"another-program", []string{whole[0], "/bin/sh", roleSentry}, 0},
		{"no-sentry", whole[:2], 0},
		{"sentry-itself", whole[2:], 0},
	} {
		if got := afterPrewarmer(tt.args); !slices.Equal(got, tt.args[tt.want:]) {
			t.Errorf("%s: afterPrewarmer(%q) = %q", tt.name, tt.args, got)
		}
	}
	if !stray(whole, "/b") || stray(whole, "/c") {
		t.Error("a sentry that is about to be is not known as its instance's")
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
