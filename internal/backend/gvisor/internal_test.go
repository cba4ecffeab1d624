package gvisor

import (
	"testing"
)

func TestRole(t *testing.T) {
	for _, argv0 := range []string{"carboy", "/usr/bin/carboy", "boot", "gofer", "runsc", "umount", ""} {
		if Role(argv0) != nil {
			t.Errorf("Role(%q) is a role", argv0)
		}
	}
	for _, argv0 := range []string{roleSentry, roleGofer, roleLauncher, roleSelf} {
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
