package image

import (
	"errors"
	"io"
	"sync"
	"time"
)

// countingReader tells how many bytes have been read.
type countingReader struct {
	r    io.Reader
	n    int64
	err  error // of r, other than its end
	each func(n int64)
}

// Read reads.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	c.each(c.n)
	return n, err
}

// reporter hands on progress, one call at a time and none too often.
type reporter struct {
	now  func() time.Time
	to   func(Progress)
	mu   sync.Mutex
	last map[string]mark
}

type mark struct {
	phase string
	at    time.Time
}

// every is the shortest time between two reports of the same phase of a layer.
const every = 100 * time.Millisecond

func (r *reporter) report(layer, phase string, done, total int64) {
	if r.to == nil {
		return
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.last[layer]; m.phase == phase && now.Sub(m.at) < every {
		return
	}
	r.last[layer] = mark{phase, now}
	r.to(Progress{Layer: layer, Phase: phase, Done: done, Total: total})
}
