package daemon

import (
	"math"
	"testing"
)

func TestCallers(t *testing.T) {
	for files, want := range map[uint64]int{0: 64, 256: 64, 1024: 256, 4096: 1024, 1 << 20: 1 << 16, math.MaxUint64: 1 << 16} {
		if got := callers(files); got != want {
			t.Errorf("callers(%d) = %d, want %d", files, got, want)
		}
	}
}
