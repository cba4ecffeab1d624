package sandbox_test

import (
	"slices"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// faults are operations of a wall's that fail once. Several are under way at
// a time.
type faults struct {
	mu  sync.Mutex
	ops []sandboxtest.Op
}

func (f *faults) add(op sandboxtest.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops = append(f.ops, op)
}

// take reports whether op is to fail now.
func (f *faults) take(op sandboxtest.Op) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.ops, op)
	if i >= 0 {
		f.ops = slices.Delete(f.ops, i, i+1)
	}
	return i >= 0
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops = nil
}
