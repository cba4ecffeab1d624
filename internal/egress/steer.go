package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	wantedPoll    = 50 * time.Second // how long a question for what is wanted waits
	headerLimit   = 10 * time.Second
	maxConfigSize = 16 << 20
)

// serveControl does what the daemon says, on a socket that it alone can open.
func (s *service) serveControl(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, status{PID: os.Getpid(), Started: s.started, Use: sandbox.NetUse{Connections: s.proxy.Conns() + s.flows.Len(), Counters: s.counts.all()}})
	})
	mux.HandleFunc("PUT "+pathConfig, func(w http.ResponseWriter, r *http.Request) {
		var c config
		if read(w, r, &c) {
			if err := s.apply(c); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		}
	})
	mux.HandleFunc("GET "+pathWanted, func(w http.ResponseWriter, r *http.Request) {
		select {
		case name := <-s.vault.wanted:
			reply(w, name)
		case <-time.After(wantedPoll):
			reply(w, "")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("PUT "+pathSecrets, func(w http.ResponseWriter, r *http.Request) {
		var a answered
		if read(w, r, &a) {
			s.vault.give(a)
		}
	})
	mux.HandleFunc("PUT "+pathRecord, func(http.ResponseWriter, *http.Request) { s.probed.Store(false) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerLimit, BaseContext: func(net.Listener) context.Context { return ctx }}
	return server.Serve(l)
}

// read decodes a request's body, strictly, or answers that it can't be.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(io.LimitReader(r.Body, maxConfigSize))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		http.Error(w, "read: "+err.Error(), http.StatusBadRequest)
		return false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		http.Error(w, "read: more follows", http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a daemon that has gone asks again
}
