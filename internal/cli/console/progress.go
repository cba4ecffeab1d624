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
	noteEvery     = 3 * time.Second // between lines of JSON
)

// Progress shows on a terminal how much was copied, if that takes its time,
// and leaves no trace of it.
type Progress struct {
	n     atomic.Int64
	files atomic.Int64
	says  atomic.Pointer[string] // in place of what was copied
	plain func(text string)      // tells where no terminal is; nil: nobody
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

// NewFileProgress starts to watch files that somebody else copies. Where no terminal is, lines tell
// of it: what, once, or with --json how much, every few seconds. Stop must be called.
func (c *Console) NewFileProgress(what string) *Progress {
	p := c.NewProgress()
	if IsTerminal(p.w) && !c.JSON {
		return p
	}
	told, next := false, c.Now().Add(progressAfter)
	p.plain = func(text string) {
		now := c.Now()
		if now.Before(next) || told && !c.JSON {
			return
		}
		told, next = true, now.Add(noteEvery)
		if !c.JSON {
			text = what
		}
		c.NoteReason("copying", text)
	}
	return p
}

// Set says how much was copied so far. It is called by one goroutine.
func (p *Progress) Set(files, bytes int64) {
	p.n.Store(bytes)
	p.files.Store(files)
	if p.plain != nil {
		p.plain(p.text())
	}
}

// NewStatus starts to show what Say is told, of what is no copy. Where no terminal is, lines
// tell of it every few seconds, with --json as notes. Stop must be called.
func (c *Console) NewStatus() *Progress {
	p := c.NewProgress()
	if IsTerminal(p.w) && !c.JSON {
		return p
	}
	next := c.Now().Add(progressAfter)
	p.plain = func(text string) {
		if now := c.Now(); now.After(next) {
			next = now.Add(noteEvery)
			c.NoteReason("working", text)
		}
	}
	return p
}

// Say says how far it is. It is called by one goroutine.
func (p *Progress) Say(text string) {
	p.says.Store(&text)
	if p.plain != nil {
		p.plain(text)
	}
}

func (p *Progress) text() string {
	if s := p.says.Load(); s != nil {
		return Escape(*s)
	}
	text := term.FormatSize(p.n.Load())
	if n := p.files.Load(); n > 0 {
		text += ", " + Count(int(n), "file")
	}
	return text + " copied"
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
			if p.n.Load() == 0 && p.files.Load() == 0 && p.says.Load() == nil {
				continue // nothing has begun
			}
			p.mu.Lock()
			_, _ = io.WriteString(p.w, "\r\x1b[K"+p.text()) // no harm where it fails
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
