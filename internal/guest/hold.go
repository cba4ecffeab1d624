package guest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/guest/still"
)

// holdLimit ends a hold that its holder forgot.
const holdLimit = 15 * time.Minute

// holding is what keeps commands still while the host copies their files. It
// lasts as long as the request that asked for it: whichever process dies on the host,
// its connection ends, and everything goes on. The agent's own end is its end too.
type holding struct {
	mu   sync.Mutex
	held *still.Held   // nil: nothing is held
	over chan struct{} // closed when what is held goes on
	off  bool          // the agent ends
}

// hold stops all commands, says so, and lets them go on when its caller leaves.
func (a *agent) hold(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), holdLimit)
	defer cancel()
	_, err := a.holding.begin(ctx, a.jail.Init())
	if errors.Is(err, errHeld) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if err != nil {
		a.log.Warn("hold commands", "err", err)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer a.holding.end()
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

// errHeld says that commands can't be held a second time.
var errHeld = errors.New("commands are held already")

// begin holds commands until end. From its start requests wait.
func (h *holding) begin(ctx context.Context, init int) (*still.Held, error) {
	if !h.claim() {
		return nil, errHeld
	}
	held, err := still.Hold(ctx, init)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.off {
		held.Release()
		err = errHeld
	}
	if err != nil {
		h.finish()
		return nil, err
	}
	h.held = held
	return held, nil
}

func (h *holding) claim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over != nil || h.off {
		return false
	}
	h.over = make(chan struct{})
	return true
}

// finish lets requests go on.
func (h *holding) finish() {
	close(h.over)
	h.held, h.over = nil, nil
}

// stop lets go what is held, for good: what is held can't end.
func (h *holding) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.off = true
	if h.held != nil {
		h.held.Release()
		h.held = nil
	}
}

func (h *holding) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held != nil {
		h.held.Release()
	}
	h.finish()
}

func (h *holding) undisturbed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held != nil && h.held.Undisturbed()
}

// whileHeld are the paths that are served while commands are held: they
// neither start one nor write a file.
var whileHeld = map[string]bool{
	"/health": true, "/metrics": true, "/carboy/status": true, "/carboy/asked": true, "/carboy/sync": true, "/carboy/hold": true,
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

// suspend has the agent give up all connections: a kernel that is about to be
// written to disk must hold nothing of the host's. The one over which that was
// asked is answered, and ends when it is the last. Commands go on; a client that
// reads their output has to come again.
//
// A socket that a program has bound to a path is the host's, too, and nobody
// but the program can give it up: where there is one, it is named.
func (a *agent) suspend(w http.ResponseWriter, _ *http.Request) {
	if held := boundSocket(); held != "" {
		http.Error(w, held, http.StatusConflict)
		return
	}
	if err := ownProgram(); err != nil {
		a.log.Error("suspend", "err", err)
		http.Error(w, "the agent's program can't be kept", http.StatusInternalServerError)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "suspend: over HTTP/1 alone", http.StatusHTTPVersionNotSupported)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	select {
	case a.suspended <- conn:
	default: // it is about to
		_ = conn.Close()
	}
}

// unixTable lists unix sockets: their path, where they have one, comes last.
const unixTable = "/proc/net/unix"

// connected is the state of a socket in that table whose path is its peer's.
const connected = "03"

// boundSocket names a path that somebody's socket is bound to, or is "". What is
// below /dev is in no file system of the host's.
func boundSocket() string {
	table, err := os.ReadFile(unixTable)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), " /", 2)
		state := strings.Fields(f[0])
		if len(f) < 2 || len(state) < 6 || state[5] == connected {
			continue
		}
		if path := "/" + f[1]; !strings.HasPrefix(path, "/dev/") {
			return path
		}
	}
	return ""
}
