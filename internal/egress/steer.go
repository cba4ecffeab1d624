package egress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/carboy-sandbox/carboy/internal/approval"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

const (
	wantedPoll    = 50 * time.Second // how long a question for what is wanted waits
	headerLimit   = 10 * time.Second
	flushLimit    = time.Second
	maxConfigSize = 16 << 20
)

// serveControl does what the daemon says, on a socket that it alone can open.
func (s *service) serveControl(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, func(w http.ResponseWriter, r *http.Request) {
		st := status{PID: os.Getpid(), Started: s.started, Use: sandbox.NetUse{Connections: s.proxy.Conns() + s.flows.Len(), Counters: s.counts.all()}}
		// What is counted is in the record by the time that it is told: whoever sees
		// nothing open can read all that there was.
		ctx, cancel := context.WithTimeout(r.Context(), flushLimit)
		_ = s.log.Flush(ctx) // the record says itself what it lost
		cancel()
		reply(w, st)
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
	mux.HandleFunc("GET "+pathAsked, s.tellAsked)
	mux.HandleFunc("PUT "+pathAnswer, s.takeAnswer)
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

// tellAsked says what waits for a person once that is not what the daemon knows, or
// after a while. A daemon that was not here before finds nothing of what an earlier
// one was asked.
func (s *service) tellAsked(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.FormValue("after"), 10, 64)
	if err != nil {
		http.Error(w, "read: after is no number", http.StatusBadRequest)
		return
	}
	s.asks.Attend(r.FormValue("session"))
	ctx, cancel := context.WithTimeout(r.Context(), wantedPoll)
	defer cancel()
	reply(w, s.asks.Look(ctx, after))
}

// takeAnswer lets go, or refuses, what waits for an answer.
func (s *service) takeAnswer(w http.ResponseWriter, r *http.Request) {
	var a approval.Answer
	if !read(w, r, &a) {
		return
	}
	if err := s.asks.Answer(a); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
