package journal

import "sync"

// Budget bounds the memory that ended commands' journals hold together: the
// one that ended first is discarded first.
type Budget struct {
	mu    sync.Mutex
	limit int
	used  int
	ended []*Journal // oldest first
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// End puts a journal under the budget, once its command has ended.
func (b *Budget) End(j *Journal) { b.charge(j, j.end(b)) }

// charge accounts for n bytes more of j. It is called without any journal's
// lock.
func (b *Budget) charge(j *Journal, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && !j.listed {
		j.listed = true
		b.ended = append(b.ended, j)
	}
	b.used += n
	for b.used > b.limit && len(b.ended) > 0 {
		oldest := b.ended[0]
		b.used -= oldest.discard()
		oldest.listed = false
		b.ended[0] = nil
		b.ended = b.ended[1:]
	}
}
