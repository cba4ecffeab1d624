package gvisor

import (
	"slices"
	"testing"
)

func TestCPUCount(t *testing.T) {
	for _, tt := range []struct {
		quota int64
		want  int
	}{{10_000, 2}, {100_000, 2}, {200_000, 2}} {
		if got := CPUCount(tt.quota, CPUPeriod); got != tt.want {
			t.Errorf("CPUCount(%d) = %d, want %d", tt.quota, got, tt.want)
		}
	}
}

// TestAfterPrewarmer: only gVisor's own command line is taken apart.
func TestAfterPrewarmer(t *testing.T) {
	whole := []string{"/proc/self/fd/230/gvisor-sentry-prewarmer", "/proc/self/fd/230/gvisor_sentry", RoleSentry, "--root=/b/runsc", "boot"}
	for _, tt := range []struct {
		name string
		args []string
		want int // arguments that go
	}{
		{"whole", whole, 2},
		{"another-program", []string{whole[0], "/bin/sh", RoleSentry}, 0},
		{"no-sentry", whole[:2], 0},
		{"sentry-itself", whole[2:], 0},
	} {
		if got := AfterPrewarmer(tt.args); !slices.Equal(got, tt.args[tt.want:]) {
			t.Errorf("%s: AfterPrewarmer(%q) = %q", tt.name, tt.args, got)
		}
	}
	if !stray(whole, "/b") || stray(whole, "/c") {
		t.Error("a sentry that is about to be is not known as its instance's")
	}
}
