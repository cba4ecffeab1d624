package action

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/action"
)

const (
	maxServices = 32        // that are known: those that have ended make room
	maxLog      = 128 << 10 // bytes that are kept of each stream of a service
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

// tail keeps the end of a stream, over all restarts.
type tail struct {
	mu   sync.Mutex
	kept []byte
	gone bool // there was more
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kept = append(t.kept, p...); len(t.kept) > 2*maxLog {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-maxLog:]...)
		t.gone = true
	}
}

func (t *tail) lost(int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
}

// last returns the last lines, or all that is kept for 0, and whether there was more.
func (t *tail) last(lines int) (text string, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept, more := t.kept, t.gone
	if over := len(kept) - maxLog; over > 0 {
		kept, more = kept[over:], true
	}
	if lines > 0 {
		end := len(bytes.TrimSuffix(kept, []byte("\n")))
		for range lines {
			end = bytes.LastIndexByte(kept[:max(0, end)], '\n')
		}
		if end >= 0 {
			kept, more = kept[end+1:], true
		}
	}
	text, _ = fit(kept, 6*maxLog)
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
