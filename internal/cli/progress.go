package cli

import (
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	progressAfter = time.Second // before which nobody needs to be told
	progressEvery = 200 * time.Millisecond
)

// progress shows on a terminal how much was copied, if that takes its time,
// and leaves no trace of it.
type progress struct {
	n     atomic.Int64
	w     io.Writer
	mu    sync.Mutex
	shown bool
	quit  chan struct{}
	done  sync.WaitGroup
}

// newProgress starts to watch; stop must be called.
func newProgress(a *app) *progress {
	p := &progress{w: a.env.Stderr, quit: make(chan struct{})}
	if isTerminal(p.w) && !a.json {
		p.done.Go(p.watch)
	}
	return p
}

func (p *progress) watch() {
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-wait.C:
			wait.Reset(progressEvery)
			p.mu.Lock()
			_, _ = io.WriteString(p.w, "\r\x1b[K"+formatSize(p.n.Load())+" copied") // no harm where it fails
			p.shown = true
			p.mu.Unlock()
		}
	}
}

// clear removes what is shown, to make way for something else.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K") // as above
		p.shown = false
	}
}

// stop ends it and clears what is shown.
func (p *progress) stop() {
	close(p.quit)
	p.done.Wait()
	p.clear()
}

// reader counts what is read of r.
func (p *progress) reader(r io.Reader) io.Reader { return &countingReader{r, &p.n} }

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

// Read reads and counts.
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	return n, err
}
