package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
)

// records streams what a sandbox tried to reach.
func (a networkAPI) records(w http.ResponseWriter, r *http.Request) {
	o, err := netLogOptions(r)
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := &recordStream{out: newStream(w, "application/jsonl"), flush: o.Follow}
	stop := func() {}
	if o.Follow {
		stop = out.beat()
	}
	err = a.m.NetLog(r.Context(), auth.Of(r).Caller, r.PathValue("id"), o, out.record)
	stop()
	gone := errors.Is(err, errGone) || r.Context().Err() != nil
	switch {
	case err == nil && !gone:
		out.out.begin()
	case !out.out.begun && !gone:
		wire.Error(w, err)
	default:
		// Half a stream must not be taken for a whole one, and a follower whom
		// the daemon leaves comes back.
		if !gone {
			a.log.Warn("stream records", "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}

// netLogOptions reads ?after=SEQ&since=TIME&denied=1&follow=1.
func netLogOptions(r *http.Request) (o sandbox.NetLogOptions, err error) {
	q, err := query(r, "after", "since", "denied", "follow")
	if err != nil {
		return o, err
	}
	switch v := q["after"]; {
	case len(v) > 1:
		return o, sandbox.Errorf(sandbox.Invalid, "parameter after: it is there twice")
	case len(v) == 1:
		if o.After, err = strconv.ParseUint(v[0], 10, 64); err != nil {
			return o, sandbox.Errorf(sandbox.Invalid, "parameter after: not the number of a record")
		}
	}
	switch v := q["since"]; {
	case len(v) > 1:
		return o, sandbox.Errorf(sandbox.Invalid, "parameter since: it is there twice")
	case len(v) == 1:
		if o.Since, err = time.Parse(time.RFC3339Nano, v[0]); err != nil {
			return o, sandbox.Errorf(sandbox.Invalid, "parameter since: no time").WithHint("as in RFC 3339: 2026-01-02T15:04:05Z")
		}
	}
	if o.Denied, err = truth("denied", q["denied"]); err != nil {
		return o, err
	}
	o.Follow, err = truth("follow", q["follow"])
	return o, err
}

// errGone ends a reading whose reader has gone.
var errGone = errors.New("nobody reads the records any more")

// recordStream writes records, and a sign of life where none come.
type recordStream struct {
	flush bool // each record is sent at once

	mu    sync.Mutex
	out   *stream
	quiet bool // nothing was written since the last beat
}

// record sends one.
func (s *recordStream) record(rec netlog.Record) error {
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = false
	b = append(b, '\n')
	if s.flush {
		if !s.out.write(b) {
			return errGone
		}
		return nil
	}
	if _, err := s.out.Write(b); err != nil {
		return errGone
	}
	return nil
}

// beat sends a byte where nothing else was sent for holdBeat, until
// stop is called. One that can't be sent needs no telling: the request's
// context ends.
func (s *recordStream) beat() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		t := time.NewTicker(holdBeat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			s.mu.Lock()
			if s.quiet {
				s.out.write([]byte("\n"))
			}
			s.quiet = true
			s.mu.Unlock()
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
