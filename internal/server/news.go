package server

import (
	"encoding/json"
	"net/http"
	"sync"
)

// newsStream writes news to the caller, a line for each, at the pace at which
// they read: of what is not written yet, the newest of its kind is kept. So a slow
// reader holds nobody up who waits for the same work.
type newsStream[N any] struct {
	out  *stream
	same func(a, b N) bool // the newer takes the place of the older
	wrap func(N) any       // makes the line

	mu      sync.Mutex
	pending []N           // guarded by mu
	kick    chan struct{} // has one element while there is something to write
	end     chan struct{}
	done    sync.WaitGroup
}

// newNewsStream begins to write to w; stop must be called.
func newNewsStream[N any](w http.ResponseWriter, same func(a, b N) bool, wrap func(N) any) *newsStream[N] {
	s := &newsStream[N]{
		out: newStream(w, "application/jsonl"), same: same, wrap: wrap,
		kick: make(chan struct{}, 1), end: make(chan struct{}),
	}
	s.done.Go(s.write)
	return s
}

// report notes n. It does not block.
func (s *newsStream[N]) report(n N) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.pending {
		if s.same(s.pending[i], n) {
			s.pending[i] = n
			return
		}
	}
	s.pending = append(s.pending, n)
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// write writes what is reported until stop.
func (s *newsStream[N]) write() {
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

func (s *newsStream[N]) flush() bool {
	s.mu.Lock()
	pending := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, n := range pending {
		if !s.line(s.wrap(n)) {
			return false
		}
	}
	return true
}

// stop writes what is left, and reports whether anything was written at all.
// Only then may the caller write.
func (s *newsStream[N]) stop() bool {
	close(s.end)
	s.done.Wait()
	return s.out.begun
}

// line writes v, and reports whether there is anyone to read it.
func (s *newsStream[N]) line(v any) bool {
	b, err := json.Marshal(v)
	return err == nil && s.out.write(append(b, '\n'))
}
