package gvisor

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRole(t *testing.T) {
	for _, argv0 := range []string{"carboy", "/usr/bin/carboy", "boot", "gofer", "runsc", "umount", ""} {
		if Role(argv0) != nil {
			t.Errorf("Role(%q) is a role", argv0)
		}
	}
	for _, argv0 := range []string{roleSentry, roleGofer, roleLauncher, roleChanges} {
		if Role(argv0) == nil {
			t.Errorf("Role(%q) is none", argv0)
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

// A swap is a bijection: every id has one place, on both sides.
func TestSwapped(t *testing.T) {
	tests := []struct {
		a, b uint32
		want []syscall.SysProcIDMap
	}{
		{1000, 1000, []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1<<32 - 1}}},
		{0, 1000, []syscall.SysProcIDMap{
			{ContainerID: 0, HostID: 1000, Size: 1},
			{ContainerID: 1000, HostID: 0, Size: 1},
			{ContainerID: 1, HostID: 1, Size: 999},
			{ContainerID: 1001, HostID: 1001, Size: 1<<32 - 1 - 1001},
		}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, swapped(tt.a, tt.b)); diff != "" {
			t.Errorf("swapped(%d, %d):\n%s", tt.a, tt.b, diff)
		}
	}
}

func TestTailBuffer(t *testing.T) {
	b := &tailBuffer{limit: 4}
	for _, s := range []string{"ab", "cd", "e", "", "fghijk"} {
		if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := b.String(); got != "hijk" {
		t.Errorf("kept %q", got)
	}
}
