package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/server/auth"
	"github.com/carboy-sandbox/carboy/internal/server/wire"
	"github.com/carboy-sandbox/carboy/internal/tenant/key"
	"github.com/carboy-sandbox/carboy/internal/workspace"
)

// maxPaths bounds how many paths a request may select.
const maxPaths = 10_000

// maxSelection bounds the body of a request that selects, in bytes.
const maxSelection = 4 << 20

// hold keeps a sandbox for as long as the connection lasts, with a byte
// from time to time so that both ends learn when it broke.
func (a *sandboxAPI) hold(w http.ResponseWriter, r *http.Request) {
	caller, ref := auth.Of(r).Caller, r.PathValue("id")
	release, err := a.m.Hold(r.Context(), caller, ref)
	if err != nil {
		wire.Error(w, err)
		return
	}
	defer release()
	out := newStream(w, "text/plain; charset=utf-8")
	beat := time.NewTicker(holdBeat)
	defer beat.Stop()
	for out.write([]byte("\n")) {
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
		}
		if _, err := a.m.Get(r.Context(), caller, ref); err != nil {
			return // the next attempt tells why
		}
	}
}

// events writes a sandbox's log, and with follow what is added to it.
func (a *sandboxAPI) events(w http.ResponseWriter, r *http.Request) {
	follow, err := flag(r, "follow")
	if err != nil {
		wire.Error(w, err)
		return
	}
	caller, ref := auth.Of(r).Caller, r.PathValue("id")
	events, err := a.m.Events(r.Context(), caller, ref)
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := newStream(w, "application/jsonl")
	if !out.events(events) || !follow {
		return
	}
	followEvents(r.Context(), out, events, func() ([]sandbox.Event, error) {
		return a.m.Events(r.Context(), caller, ref)
	})
}

// followEvents writes what is new in the log until the caller or the sandbox
// has gone.
func followEvents(ctx context.Context, out *stream, old []sandbox.Event, read func() ([]sandbox.Event, error)) {
	poll := time.NewTicker(eventPoll)
	defer poll.Stop()
	quiet := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		now, err := read()
		if err != nil {
			return
		}
		fresh := newerThan(now, old)
		if old = now; len(fresh) > 0 {
			quiet = 0
		} else if quiet++; quiet < int(holdBeat/eventPoll) {
			continue
		} else {
			quiet = 0
		}
		if !out.events(fresh) || len(fresh) == 0 && !out.write([]byte("\n")) {
			return
		}
	}
}

// newerThan returns the events of now that are not in old. Both are windows
// of one log, oldest first: what old ends with is what now begins with.
func newerThan(now, old []sandbox.Event) []sandbox.Event {
	for i := range old {
		if n := len(old) - i; n <= len(now) && slices.Equal(old[i:], now[:n]) {
			return now[n:]
		}
	}
	return now
}

// changes writes what was changed below /workspace. What fails after the
// first byte breaks the connection, so that half a stream is not taken for a
// whole one.
func (a *sandboxAPI) changes(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "content", "path", "exclude", "only")
	if err != nil {
		wire.Error(w, err)
		return
	}
	content, err := truth("content", q["content"])
	if err != nil {
		wire.Error(w, err)
		return
	}
	o := sandbox.ChangesOptions{
		Content: content, Paths: q["path"], Filter: sandbox.ChangesFilter{Exclude: q["exclude"], Only: q["only"]},
	}
	if err := checkChanges(o); err != nil {
		wire.Error(w, err)
		return
	}
	out := newStream(w, "application/octet-stream")
	out.finish(a.m.Changes(r.Context(), auth.Of(r).Caller, r.PathValue("id"), o, out))
}

// selectChanges is changes for a selection that no query has room for.
func (a *sandboxAPI) selectChanges(w http.ResponseWriter, r *http.Request) {
	o, hold, err := changesRequest(r)
	switch {
	case err != nil:
	case o.Whole && !auth.Of(r).Allows(key.Manage):
		err = sandbox.Errorf(sandbox.Denied, "whole: it writes to the sandbox's disk, and the key lacks the scope %q", key.Manage)
	case hold && !o.Whole:
		err = sandbox.Errorf(sandbox.Invalid, "hold: only with whole")
	}
	if err != nil {
		wire.Error(w, err)
		return
	}
	out := newStream(w, "application/octet-stream")
	if hold {
		o.Held = out.held
	}
	out.finish(a.m.Changes(r.Context(), auth.Of(r).Caller, r.PathValue("id"), o, out))
}

// changesRequest reads what of some changes is wanted, and whether a sandbox is to be held.
func changesRequest(r *http.Request) (o sandbox.ChangesOptions, hold bool, err error) {
	body, err := wire.Large(r, maxSelection)
	var req api.ChangesRequest
	if err == nil {
		err = wire.DecodeBytes(body, &req)
	}
	o = sandbox.ChangesOptions{
		Content: req.Content, Paths: req.Paths, Whole: req.Whole, Origins: req.Origins, Selves: req.Selves, Filter: sandbox.ChangesFilter{
			Ignore: req.Ignore, Prefix: req.Prefix, Tracked: req.Tracked, Exclude: req.Exclude, Only: req.Only,
		},
	}
	if err == nil {
		err = checkChanges(o)
	}
	return o, req.Hold, err
}

// held keeps an answer open that is complete until its reader closes it. A byte more says that over is closed.
func (s *stream) held(ctx context.Context, over <-chan struct{}) {
	if !s.write(nil) {
		return
	}
	select {
	case <-ctx.Done():
	case <-over:
		_ = s.write([]byte("\n")) // or nobody is there
	}
}

func checkChanges(o sandbox.ChangesOptions) error {
	if len(o.Paths) > maxPaths {
		return sandbox.Errorf(sandbox.Invalid, "path: more than %d", maxPaths)
	}
	return errors.Join(workspace.CheckPaths(o.Paths), workspace.CheckFilter(o.Filter))
}

// finish ends an answer whose pieces ended in err. What fails after the first breaks the connection.
func (s *stream) finish(err error) {
	switch {
	case err == nil:
		s.begin()
	case !s.begun:
		wire.Error(s.w, err)
	default:
		wire.Failed(s.w, err)
		panic(http.ErrAbortHandler)
	}
}

// stream is an answer that is written piece by piece. Nothing is sent before
// the first piece, so that an error can still be an answer.
type stream struct {
	w     http.ResponseWriter
	ctype string
	begun bool
}

func newStream(w http.ResponseWriter, contentType string) *stream {
	return &stream{w: w, ctype: contentType}
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", s.ctype)
	s.w.Header().Set("X-Content-Type-Options", "nosniff")
	s.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (s *stream) Write(b []byte) (int, error) {
	s.begin()
	return s.w.Write(b)
}

// write sends b at once, and reports whether there is anyone to send it to.
func (s *stream) write(b []byte) bool {
	if _, err := s.Write(b); err != nil {
		return false
	}
	return http.NewResponseController(s.w).Flush() == nil
}

// events sends a line for each event.
func (s *stream) events(events []sandbox.Event) bool {
	s.begin()
	enc := json.NewEncoder(s)
	for _, ev := range events {
		if enc.Encode(api.Event{Time: ev.Time, Type: ev.Type, Message: ev.Message}) != nil {
			return false
		}
	}
	return http.NewResponseController(s.w).Flush() == nil
}
