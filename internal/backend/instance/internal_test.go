package instance

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
