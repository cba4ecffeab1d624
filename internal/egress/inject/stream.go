package inject

import (
	"io"
	"net/http"

	"github.com/carboy-sandbox/carboy/internal/weak"
)

// reader passes on what src has, as far as it was searched. What the search
// holds back goes on at a good end alone: of what breaks off nobody knows what
// would have come next.
type reader struct {
	src  io.ReadCloser
	scan scanner
	// refuse says why the search ended the stream.
	refuse func(outcome) *Refusal
	// ends has it count too what scan makes of a good end: for values, of which
	// the most of one is as good as all. Placeholders are of no use in part.
	ends bool
	// end is asked once src has ended well, for trailers; nil asks nothing.
	end func() *Refusal

	ready   []byte // searched, and to be passed on
	kept    []byte // what scan holds
	err     error
	refused bool // err is a refusal
}

// Read implements io.Reader. It fails with a *Refusal, and passes on nothing of
// what that is about.
func (r *reader) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if len(r.ready) > 0 {
			n := copy(p, r.ready)
			r.ready = r.ready[n:]
			return n, nil
		}
		if r.err != nil {
			return 0, r.err
		}
		if n := r.fill(p); n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// fill reads once. What may be passed on is in p[:n], or in ready.
func (r *reader) fill(p []byte) (n int) {
	n, err := r.src.Read(p)
	if o := r.scan.feed(p[:n]); o != clean {
		r.stop(r.refuse(o))
		return 0
	}
	held := r.scan.held()
	if err != nil {
		r.err = err
		// io.EOF itself is a good end; what wraps it is none
		if weak.On(weak.NetHeldPass) || err == io.EOF && r.endsWell() {
			held = 0
		}
		if r.refused {
			return 0
		}
	}
	if len(r.kept) == 0 && held <= n {
		r.kept = append(r.kept, p[n-held:n]...)
		return n - held
	}
	// ready is used up here: its room is free for what was kept.
	r.ready = append(append(r.ready[:0], r.kept...), p[:n]...)
	held = min(held, len(r.ready))
	r.kept = append(r.kept[:0], r.ready[len(r.ready)-held:]...)
	r.ready = r.ready[:len(r.ready)-held]
	return 0
}

// endsWell reports whether what is held may go on, as src has ended.
func (r *reader) endsWell() bool {
	switch o := r.scan.end(); {
	case o == found || o == nearly && r.ends:
		r.stop(r.refuse(found))
		return false
	case o == garbled && r.ends:
		r.err = io.ErrUnexpectedEOF
		return false
	}
	if r.end == nil {
		return true
	}
	why := r.end()
	if why != nil {
		r.stop(why)
	}
	return why == nil
}

func (r *reader) stop(why *Refusal) {
	r.err, r.ready, r.kept, r.refused = why, nil, nil, true
}

// Close closes what is read from.
func (r *reader) Close() error { return r.src.Close() }

// writer passes on what is written to it, as far as it was searched.
type writer struct {
	dst    io.Writer
	scan   scanner
	refuse func(outcome) *Refusal
	kept   []byte
	err    error
}

// Write implements io.Writer. It fails with a *Refusal before a byte of p goes
// on that completes what is refused. What it holds back counts as written.
func (w *writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	if o := w.scan.feed(p); o != clean {
		w.err = w.refuse(o)
		w.kept = nil
		return 0, w.err
	}
	out, held := p, w.scan.held()
	if len(w.kept) > 0 || held > len(p) {
		out = append(w.kept, p...)
		held = min(held, len(out))
		w.kept = append([]byte(nil), out[len(out)-held:]...)
	} else {
		w.kept = append(w.kept, p[len(p)-held:]...)
	}
	if out = out[:len(out)-held]; len(out) > 0 {
		if _, err := w.dst.Write(out); err != nil {
			w.err = err
			return 0, err
		}
	}
	return len(p), nil
}

// Stream wraps both ways of an upgraded connection, such as a WebSocket: up is
// where bytes to the upstream are written, down where those from it are read.
// header is that of the answer which upgraded it. Both fail with a *Refusal
// before a placeholder or a value is complete; Exchange.Refusal has it then.
//
// What up holds back at its end is never written: half a placeholder is of no
// use to anybody.
func (g *Guard) Stream(x *Exchange, header http.Header, up io.Writer, down io.Reader) (io.Writer, io.Reader) {
	if x == nil {
		return up, down
	}
	scan := func(m *matcher) scanner {
		if websocket(header) {
			return newFrames(m)
		}
		return newSearcher(m)
	}
	refuse := func(why *Refusal) func(outcome) *Refusal {
		return func(o outcome) *Refusal {
			if o == garbled {
				return x.refused(unreadable(http.StatusBadGateway, "the stream"))
			}
			return x.refused(why)
		}
	}
	if m := x.bodies; m != nil {
		up = &writer{dst: up, scan: scan(m), refuse: refuse(inBody("the stream"))}
	}
	if x.values != nil {
		down = &reader{src: io.NopCloser(down), scan: scan(x.values), ends: true, refuse: refuse(echoed("the stream"))}
	}
	return up, down
}
