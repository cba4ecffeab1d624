package guest

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/still"
)

// holdLimit ends a hold that its holder forgot.
const holdLimit = 15 * time.Minute

// holding is what keeps commands still while the host copies their files. It
// lasts as long as the request that asked for it: whoever dies on the host,
// its connection ends, and everything goes on.
type holding struct {
	mu   sync.Mutex
	held *still.Held   // nil: nothing is held
	over chan struct{} // closed when what is held goes on
}

// hold stops all commands, says so, and lets them go on when its caller leaves.
func (a *agent) hold(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), holdLimit)
	defer cancel()
	if !a.holding.begin() {
		http.Error(w, "commands are held already", http.StatusConflict)
		return
	}
	defer a.holding.end()
	held, err := still.Hold(ctx, a.jail.Init())
	if err != nil {
		a.log.Warn("hold commands", "err", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	a.holding.set(held)
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() == nil {
		<-ctx.Done()
	}
}

// serveHeld says whether commands have been held without a break.
func (a *agent) serveHeld(w http.ResponseWriter, _ *http.Request) {
	if !a.holding.undisturbed() {
		http.Error(w, "commands are not held", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *holding) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil {
		return false
	}
	h.over = make(chan struct{})
	return true
}

func (h *holding) set(held *still.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = held
}

func (h *holding) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held != nil {
		h.held.Release()
	}
	close(h.over)
	h.held, h.over = nil, nil
}

func (h *holding) undisturbed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held != nil && h.held.Undisturbed()
}

// whileHeld are the paths that are served while commands are held: they
// neither start one nor write a file.
var whileHeld = map[string]bool{
	"/health": true, "/metrics": true, "/carboy/status": true, "/carboy/sync": true, "/carboy/hold": true,
}

// with has requests that could change a file wait while commands are held.
// Those that were begun before go on.
func (h *holding) with(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect && !whileHeld[r.URL.Path] && !h.wait(r.Context()) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// wait returns once nothing is held; false where ctx ends first.
func (h *holding) wait(ctx context.Context) bool {
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over == nil {
		return true
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}
