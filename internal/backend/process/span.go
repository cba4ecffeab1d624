package process

import (
	"hash/fnv"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/backend/instance"
)

// An instance's ids on the host are a span of their own, above those that shadow's
// tools hand out (up to 600,100,000) and within what systemd keeps for
// containers (up to 1,879,048,191).
const (
	firstSpan = 1 << 30
	spanCount = 12_000
)

// spans gives instances their ids. Instances of an earlier daemon are not known to
// it: two instances may share a span then, which weakens neither's walls, only
// that their processes count as one user's.
type spans struct {
	mu   sync.Mutex
	byID map[string]uint32
	used map[uint32]string
}

func newSpans() *spans { return &spans{byID: map[string]uint32{}, used: map[uint32]string{}} }

// base returns the first id of an instance's span, the same one while this daemon
// lives.
func (s *spans) base(id string) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.byID[id]; ok {
		return b
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	n := h.Sum32() % spanCount
	for range spanCount {
		b := firstSpan + n*instance.Span
		if _, taken := s.used[b]; !taken {
			s.used[b], s.byID[id] = id, b
			return b
		}
		n = (n + 1) % spanCount
	}
	return firstSpan + n*instance.Span
}

// release forgets an instance that was removed.
func (s *spans) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, s.byID[id])
	delete(s.byID, id)
}
