package console

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carboy-sandbox/carboy/internal/text/term"
)

const (
	progressAfter = time.Second // before which nobody needs to be told
	progressEvery = 200 * time.Millisecond
)

// Progress shows on a terminal how much was copied, if that takes its time,
// and leaves no trace of it.
type Progress struct {
	n     atomic.Int64
	w     io.Writer
	mu    sync.Mutex
	shown bool
	quit  chan struct{}
	done  sync.WaitGroup
}

// NewProgress starts to watch; Stop must be called.
func (c *Console) NewProgress() *Progress {
	p := &Progress{w: c.Stderr, quit: make(chan struct{})}
	if IsTerminal(p.w) && !c.JSON {
		p.done.Go(p.watch)
	}
	return p
}

func (p *Progress) watch() {
	wait := time.NewTimer(progressAfter)
	defer wait.Stop()
	for {
		select {
		case <-p.quit:
			return
		case <-wait.C:
			wait.Reset(progressEvery)
			p.mu.Lock()
			_, _ = io.WriteString(p.w, "\r\x1b[K"+term.FormatSize(p.n.Load())+" copied") // no harm where it fails
			p.shown = true
			p.mu.Unlock()
		}
	}
}

// Clear removes what is shown, to make way for something else.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K") // as above
		p.shown = false
	}
}

// Stop ends it and clears what is shown.
func (p *Progress) Stop() {
	close(p.quit)
	p.done.Wait()
	p.Clear()
}

// Reader counts what is read of r.
func (p *Progress) Reader(r io.Reader) io.Reader { return &countingReader{r, &p.n} }

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
