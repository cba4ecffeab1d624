package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// How many requests may be answered at once whose body, or answer, has tens of
// MiB: each takes several times that of the daemon's memory. More wait.
const (
	heavyOfOwner = 2
	heavyOfAll   = 8

	// heavyWait is for how long one waits for its turn, heavyWrite for how long
	// its answer is waited for to be read.
	heavyWait  = 20 * time.Second
	heavyWrite = 2 * time.Minute
)

var errHeavy = &sandbox.Error{
	Kind: sandbox.Exhausted, Msg: "large requests: others are being served", Hint: "try again in a few seconds", Retry: 5 * time.Second,
}

// heavy are those that are under way.
type heavy struct {
	mu      sync.Mutex
	all     int
	by      map[string]int
	changed chan struct{} // closed and replaced when one ends
}

// enter waits for its turn, as long as ctx allows.
func (h *heavy) enter(ctx context.Context, owner string) (leave func(), err error) {
	for {
		h.mu.Lock()
		if h.by == nil {
			h.by, h.changed = map[string]int{}, make(chan struct{})
		}
		if h.all < heavyOfAll && h.by[owner] < heavyOfOwner {
			h.all++
			h.by[owner]++
			h.mu.Unlock()
			return func() { h.leave(owner) }, nil
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *heavy) leave(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all--
	if h.by[owner]--; h.by[owner] == 0 {
		delete(h.by, owner)
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// heavily is a handler of requests that may be heavy; those whose body says that
// it is small don't wait, unless their answers may be large.
func (s *Server) heavily(largeAnswer bool, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if largeAnswer || isLarge(r) {
			leave, err := s.enterHeavy(w, r)
			if err != nil {
				wire.Error(w, err)
				return
			}
			defer leave()
		}
		next(w, r)
	}
}

func isLarge(r *http.Request) bool { return r.ContentLength < 0 || r.ContentLength > wire.MaxBody }

// reading waits until a body may be read that may be large; leave is called when it was.
func (s *Server) reading(w http.ResponseWriter, r *http.Request) (leave func(), err error) {
	if !isLarge(r) {
		return func() {}, nil
	}
	return s.enterHeavy(w, r)
}

// enterHeavy waits for r's turn to be heavy. From then on its body has to come,
// and its answer to be read, in time: nobody keeps a turn.
func (s *Server) enterHeavy(w http.ResponseWriter, r *http.Request) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), heavyWait, errHeavy)
	defer cancel()
	turn, err := s.heavy.enter(ctx, auth.Of(r).Caller.Owner)
	if err != nil {
		return nil, err
	}
	rc := http.NewResponseController(w) // some have no deadlines
	_ = rc.SetWriteDeadline(time.Now().Add(s.bodyTime + heavyWrite))
	return func() {
		_ = rc.SetWriteDeadline(time.Time{})
		turn()
	}, nil
}
