package rpc

import "sync"

// Budget bounds the bytes of actions that are under way. A nil one bounds
// nothing.
type Budget struct {
	most int

	mu   sync.Mutex
	held int
}

// NewBudget returns one of so many bytes.
func NewBudget(most int) *Budget { return &Budget{most: most} }

// take reports whether there was room; one action has it, whatever its size.
func (b *Budget) take(n int) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 && b.held+n > b.most {
		return false
	}
	b.held += n
	return true
}

func (b *Budget) give(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}
