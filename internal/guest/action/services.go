package action

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
	"github.com/carboy-sandbox/carboy/internal/text/excerpt"
)

const (
	maxServices = 32        // that are known: those that have ended make room
	maxLog      = 128 << 10 // bytes that are kept of the end of each stream of a service
	headLog     = 32 << 10  // and of its beginning
)

// services are all that are known, by their names.
type services struct {
	mu     sync.Mutex
	closed bool
	known  map[string]*service
}

// begin takes a name for a service, and has it looked after. One that has ended is
// forgotten for it: the one of that name, or the oldest where there are too many.
func (s *services) begin(sv *service, lookAfter func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	old, again := s.known[sv.name]
	if again && !old.over() {
		return fail(kindConflict, "service %s runs already: stop it first", sv.name)
	}
	if !again && len(s.known) >= maxServices && !s.forgetLocked() {
		return fail(kindExhausted, "%d services run, and no more can: stop one", maxServices)
	}
	if s.known == nil {
		s.known = map[string]*service{}
	}
	s.known[sv.name] = sv
	lookAfter()
	return nil
}

func (s *services) forgetLocked() bool {
	var oldest *service
	for _, sv := range s.known {
		if sv.over() && (oldest == nil || sv.born.Before(oldest.born)) {
			oldest = sv
		}
	}
	if oldest != nil {
		delete(s.known, oldest.name)
	}
	return oldest != nil
}

func (s *services) get(name string) (*service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv, ok := s.known[name]
	if !ok {
		return nil, fail(kindNotFound, "there is no service %.64q", name)
	}
	return sv, nil
}

func (s *services) list() []action.Service {
	s.mu.Lock()
	var all []*service
	for _, sv := range s.known {
		all = append(all, sv)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *service) int { return cmp.Compare(a.name, b.name) })
	out := make([]action.Service, len(all))
	for i, sv := range all {
		out[i] = sv.state()
	}
	return out
}

// close has all end, and no other begin.
func (s *services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, sv := range s.known {
		sv.stop()
	}
}

// record keeps the beginning and the end of a stream, over all restarts.
type record struct {
	mu   sync.Mutex
	ends *excerpt.Keeper
}

func newRecord() *record { return &record{ends: excerpt.New(headLog, maxLog)} }

func (r *record) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.ends.Write(p) // never fails
}

func (r *record) lost(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends.Skip(n)
}

// last returns the last lines, or all that is kept for 0, and whether there was more.
func (r *record) last(lines int) (text string, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.ends.Excerpt()
	kept, leftOut := e.Whole()
	if more = leftOut > 0; lines > 0 {
		if more {
			kept = e.Tail
		}
		end := len(bytes.TrimSuffix(kept, []byte("\n")))
		for range lines {
			end = bytes.LastIndexByte(kept[:max(0, end)], '\n')
		}
		if end >= 0 {
			kept, more = kept[end+1:], true
		}
	}
	text, _ = fit(kept, math.MaxInt)
	return text, more
}

// shape is what a service was asked to be.
type shape struct {
	name, command, cwd string
	env                map[string]string
	restart            string
	ready              check // nil: once it was started
	timeout, interval  time.Duration
}
