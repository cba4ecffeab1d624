package server

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// Pulls and imports at work at once, of one owner and of all.
const (
	maxOwnerImageWork = 4
	maxImageWork      = 16
)

// imageSlots count the pulls and imports that are at work.
type imageSlots struct {
	mu    sync.Mutex
	all   int
	owner map[string]int
}

// take takes a slot for owner, or says that there is none; free gives it back.
func (l *imageSlots) take(owner string) (free func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner[owner] >= maxOwnerImageWork || l.all >= maxImageWork {
		return nil, sandbox.Errorf(sandbox.Exhausted, "images: too many are being pulled or imported").
			WithHint("wait until one is done")
	}
	if l.owner == nil {
		l.owner = map[string]int{}
	}
	l.all++
	l.owner[owner]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.owner[owner]--; l.owner[owner] == 0 {
			delete(l.owner, owner)
		}
	}, nil
}

// work answers with the progress of f and what came of it. What fails
// before there was any progress is an ordinary error.
func (a *imageAPI) work(w http.ResponseWriter, r *http.Request, f func(func(api.ImageProgress)) (api.Image, error)) {
	free, err := a.slots.take(auth.Of(r).Caller.Owner)
	if err != nil {
		wire.Error(w, err)
		return
	}
	defer free()
	out := newImageStream(w)
	img, err := f(out.report)
	begun := out.stop()
	last := api.ImageEvent{Image: &img}
	if err != nil {
		if !begun {
			wire.Error(w, err)
			return
		}
		wire.Failed(w, err)
		e := wire.Describe(err)
		last = api.ImageEvent{Error: &e}
	}
	out.line(last)
}

// imageStream writes progress to the caller, at the pace at which
// they read: of what is not written yet, the newest of each layer's phase is
// kept. So a slow reader holds nobody up who waits for the same layer.
type imageStream struct {
	out *stream

	mu      sync.Mutex
	pending []api.ImageProgress
	kick    chan struct{} // has one element while there is something to write
	end     chan struct{}
	done    sync.WaitGroup
}

func newImageStream(w http.ResponseWriter) *imageStream {
	s := &imageStream{
		out:  newStream(w, "application/jsonl"),
		kick: make(chan struct{}, 1),
		end:  make(chan struct{}),
	}
	s.done.Go(s.write)
	return s
}

// report notes p. It does not block.
func (s *imageStream) report(p api.ImageProgress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pending {
		if old := &s.pending[i]; old.Layer == p.Layer && old.Phase == p.Phase {
			*old = p
			return
		}
	}
	s.pending = append(s.pending, p)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write writes what is reported until stop.
func (s *imageStream) write() {
	for {
		select {
		case <-s.kick:
		case <-s.end:
			s.flush()
			return
		}
		if !s.flush() {
			return // nobody is there; what is at work learns it by its context
		}
	}
}

func (s *imageStream) flush() bool {
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for i := range pending {
		if !s.line(api.ImageEvent{Progress: &pending[i]}) {
			return false
		}
	}
	return true
}

// stop writes what is left, and reports whether anything was written at all.
// Only then may the caller write.
func (s *imageStream) stop() bool {
	close(s.end)
	s.done.Wait()
	return s.out.begun
}

// line writes ev, and reports whether there is anyone to read it.
func (s *imageStream) line(ev api.ImageEvent) bool {
	b, err := json.Marshal(ev)
	return err == nil && s.out.write(append(b, '\n'))
}
