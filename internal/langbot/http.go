package langbot

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/carboy-sandbox/carboy/api/langbot"
	"github.com/carboy-sandbox/carboy/internal/langbot/profile"
	"github.com/carboy-sandbox/carboy/internal/langbot/rpc"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func (h *Handler) routes() {
	h.mux = http.NewServeMux()
	h.mux.HandleFunc("GET /healthz", h.healthz)
	h.mux.HandleFunc("GET /readyz", h.readyz)
	h.mux.HandleFunc("GET /rpc/ws", h.rpc)
	h.mux.HandleFunc("GET /v1/sessions/{session}/managed-process/{process}/ws", h.relay)
	h.mux.HandleFunc("GET /v1/sessions/{session}/managed-process/ws", h.relay)
}

// ServeHTTP implements http.Handler. A page of a browser is refused whatever it
// knows: no host is one. Without a token nothing else keeps pages out, which
// could reach this machine by a name of their own: then the name matters too.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case fromPage(r.Header):
		refuse(w, http.StatusForbidden, "PermissionError", "pages of browsers are not served")
	case h.o.Token == "" && !h.known(r.Host):
		refuse(w, http.StatusForbidden, "PermissionError", "this machine is not called that; set box.hosts, or a control token")
	default:
		h.mux.ServeHTTP(w, r)
	}
}

// fromPage reports whether a page in a browser made it send a request.
func fromPage(h http.Header) bool {
	if h.Values("Origin") != nil || h.Values("Referer") != nil {
		return true
	}
	site := h.Get("Sec-Fetch-Site")
	return site != "" && site != "none"
}

func refuse(w http.ResponseWriter, status int, class, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]string{"code": class, "message": message}})
}

func refuseError(w http.ResponseWriter, err error) {
	refuse(w, http.StatusBadRequest, profile.Class(err), shown(err))
}

// crowd bounds how many there are of something at once.
type crowd chan struct{}

func (c crowd) enter() (leave func(), ok bool) {
	select {
	case c <- struct{}{}:
		return func() { <-c }, true
	default:
		return nil, false
	}
}

func tooMany(w http.ResponseWriter) {
	refuse(w, http.StatusServiceUnavailable, langbot.ClassError, "too many connections of this kind are open: close one of them")
}

func unauthorized(w http.ResponseWriter) { http.Error(w, "Unauthorized", http.StatusUnauthorized) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // who does not read it has gone
}

// authenticate returns the instance that r is of, "" for a client that says
// none, and whether it may ask at all. With bind the first instance to come is
// the one that may from then on.
func (h *Handler) authenticate(r *http.Request, bind bool) (instance string, ok bool) {
	if h.o.Token != "" && !sameSecret(r.Header.Get(langbot.HeaderControlToken), h.o.Token) {
		return "", false
	}
	instance = strings.TrimSpace(r.Header.Get(langbot.HeaderInstance))
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case instance == "":
		return "", h.o.Instance == "" && len(r.Header.Values(langbot.HeaderInstance)) == 0
	case !rpc.ValidInstance(instance):
		return "", false
	case h.pinned == "" && bind:
		h.pinned = instance
	}
	return instance, h.pinned == instance
}

// sameSecret takes as long for any text as for the right one.
func sameSecret(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func (h *Handler) healthz(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"live": true, "resources": h.resources(r)})
}

func (h *Handler) readyz(w http.ResponseWriter, r *http.Request) {
	ready := h.admit.readiness(r.Context())
	ready.Resources = h.resources(r)
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

// told reports whether who sent a request may know what there is.
func (h *Handler) told(r *http.Request) bool {
	if h.o.Token != "" {
		return sameSecret(r.Header.Get(langbot.HeaderControlToken), h.o.Token)
	}
	return h.o.Trusted == nil || h.o.Trusted(r) == nil
}

const resourcesTime = time.Second

// resources counts what there is, of everybody, for whom names would be too
// much; who lacks the token is told nothing of it. Whether the runtime lives is
// not a matter of what it has: a runtime that is starting is soon asked again.
func (h *Handler) resources(r *http.Request) map[string]int {
	if !h.told(r) {
		return map[string]int{}
	}
	ctx, cancel := context.WithTimeout(r.Context(), resourcesTime)
	defer cancel()
	st, err := h.o.Sessions.Status(ctx, sandbox.Caller{Owner: h.o.Owner, Admin: true})
	if err != nil {
		return map[string]int{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return map[string]int{"sessions": st.ActiveSessions, "managed_processes": st.Processes, "connections": h.peers}
}

// stranger refuses a request of whom no token says that they may, and nothing
// else does.
func (h *Handler) stranger(w http.ResponseWriter, r *http.Request) bool {
	if h.o.Token != "" || h.o.Trusted == nil {
		return false
	}
	err := h.o.Trusted(r)
	if err != nil {
		refuse(w, http.StatusForbidden, "PermissionError", shown(err))
	}
	return err != nil
}

// rpc is one host's connection.
func (h *Handler) rpc(w http.ResponseWriter, r *http.Request) {
	if h.stranger(w, r) {
		return
	}
	instance, ok := h.authenticate(r, true)
	if !ok {
		unauthorized(w)
		return
	}
	leave, ok := h.hosts.enter()
	if !ok {
		tooMany(w)
		return
	}
	defer leave()
	pings := rpc.NewPings()
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{OnPingReceived: pings.Answer})
	if err != nil {
		h.log.Debug("a box connection was not upgraded", "why", err)
		return
	}
	// A host that says its instance is of a version that reads large messages,
	// and joins none.
	conn := rpc.NewWebSocket(c, rpc.WebSocketOptions{Pieces: instance == "", Pings: pings})
	if err := h.serve(r.Context(), conn, instance); err != nil {
		h.log.Debug("a box connection ended", "why", err)
	}
}

// ServeConn serves one connection that is not over HTTP, as one of the pinned
// instance, until it or ctx ends. Whoever has it is trusted.
func (h *Handler) ServeConn(ctx context.Context, conn rpc.Conn) error {
	return h.serve(ctx, conn, h.o.Instance)
}

func (h *Handler) serve(ctx context.Context, conn rpc.Conn, instance string) error {
	if !h.join() {
		return conn.Close()
	}
	defer h.live.Done()
	h.count(1)
	defer h.count(-1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(h.ctx, func() { cancel(errLeaving) })
	defer stop()
	l := &link{h: h, instance: instance}
	l.peer = rpc.NewPeer(rpc.Options{
		Conn: conn, Serve: l.answer, ErrorText: errorText, Log: h.log, Now: h.clock.Now,
		Files: rpc.FileLimits{MaxBytes: h.o.Limits.MaxRPCFileBytes}, Budget: h.budget,
	})
	return l.peer.Run(ctx)
}

// join counts a connection among those that Close waits for; false: it does
// not wait any more.
func (h *Handler) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return false
	}
	h.live.Add(1)
	return true
}

func (h *Handler) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers += n
}
