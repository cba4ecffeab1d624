package content

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"os/exec"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/volume/tree"
)

// Options are what a Pool works with. Launch is required.
type Options struct {
	// Launch starts a command that waits for its input. Where this process is not
	// root, it starts it in a user namespace with the ids of an instance.
	Launch   func(*exec.Cmd) error
	Rootless bool
	Idle     time.Duration // how long a process is kept that nobody asks; default: 30 s
	Log      *slog.Logger  // default: none
}

// Bounds of a Pool.
const (
	maxProcesses = 16 // volumes that are looked into at once
	maxOfOwner   = 4  // of those, volumes of one owner
	maxRequests  = 32 // at once, of one volume
	defaultIdle  = 30 * time.Second
	// drainLimit is how much of a body is read that the answer did not wait for:
	// a client that only writes would not see it otherwise.
	drainLimit = 8 << 20
)

// Target is a volume to look into.
type Target struct {
	ID    string
	Owner string
	Tree  tree.Tree
	Limit int64 // bytes of one file; 0: as large as the disk allows
}

// Pool keeps a process for each volume that is being looked into. Its methods
// may be called from several goroutines.
type Pool struct {
	o Options

	mu     sync.Mutex
	closed bool
	ps     map[string]*process
	doomed map[string]bool // volumes for which none is to begin
}

// New returns a Pool. It starts nothing before it is asked.
func New(o Options) *Pool {
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return &Pool{o: o, ps: map[string]*process{}, doomed: map[string]bool{}}
}

// Serve has the process of t answer a request, whose operation is "/path",
// "/dir" or "/file". One that changes nothing is asked again, once, where the
// process ended before it answered.
func (l *Pool) Serve(w http.ResponseWriter, r *http.Request, t Target, operation string) {
	again := r.Method == http.MethodGet || r.Method == http.MethodHead
	for {
		p, err := l.acquire(r.Context(), t)
		if err != nil {
			l.refuse(w, t, err)
			return
		}
		if l.pass(w, r, p, operation, again) {
			_, _ = io.CopyN(io.Discard, r.Body, drainLimit)
			return
		}
		again = false
	}
}

// refuse answers where there is no process.
func (l *Pool) refuse(w http.ResponseWriter, t Target, err error) {
	status, text := http.StatusInternalServerError, "the volume can't be opened: the daemon's log says why"
	switch sandbox.KindOf(err) {
	case sandbox.Exhausted:
		status, text = http.StatusTooManyRequests, err.Error()
	case sandbox.NotFound:
		status, text = http.StatusNotFound, err.Error()
	case sandbox.Unavailable:
		status, text = http.StatusServiceUnavailable, err.Error()
	default:
		l.o.Log.Error("open volume", "id", t.ID, "error", err)
	}
	Fail(w, status, text)
}

// pass has p answer, and releases it. With again, it reports false where p ended before it did:
// then there is no answer yet.
func (l *Pool) pass(w http.ResponseWriter, r *http.Request, p *process, operation string, again bool) (answered bool) {
	defer l.release(p) // whatever a client that leaves makes of this
	answered = true
	proxy := &httputil.ReverseProxy{
		Transport: p.transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(pr *httputil.ProxyRequest) {
			u := *pr.In.URL
			u.Scheme, u.Host, u.Path, u.RawPath = "http", "volume", operation, ""
			pr.Out.URL, pr.Out.Host = &u, "volume"
			for _, h := range []string{"Authorization", "X-Api-Key", "Cookie"} {
				pr.Out.Header.Del(h)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if again && p.broken.Load() {
				answered = false
				return
			}
			if r.Context().Err() == nil {
				l.o.Log.Warn("ask a volume's process", "id", p.id, "error", err)
			}
			Fail(w, http.StatusServiceUnavailable, "the volume's process ended (try again)")
		},
	}
	proxy.ServeHTTP(w, r)
	return answered
}

// acquire returns the process of t, which goes on until it is released.
func (l *Pool) acquire(ctx context.Context, t Target) (*process, error) {
	l.mu.Lock()
	p, ok := l.ps[t.ID]
	if ok && p.broken.Load() {
		delete(l.ps, t.ID)
		ok = false
	}
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Unavailable, "the daemon is shutting down")
	case l.doomed[t.ID]:
		l.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.NotFound, "volume %s: it is being removed", t.ID)
	case ok && p.users >= maxRequests:
		l.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Exhausted, "volume %s: more than %d requests at once", t.ID, maxRequests)
	case !ok && !l.roomOfLocked(t.Owner):
		l.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Exhausted, "more than %d volumes of one owner are read and written at once", maxOfOwner)
	case !ok && !l.roomLocked():
		l.mu.Unlock()
		return nil, sandbox.Errorf(sandbox.Exhausted, "more than %d volumes are read and written at once", maxProcesses)
	case !ok:
		p = &process{id: t.ID, owner: t.Owner, up: make(chan struct{}), gone: make(chan struct{})}
		l.ps[t.ID] = p
		go l.run(p, t)
	}
	p.users++
	if p.idle != nil {
		p.idle.Stop()
	}
	l.mu.Unlock()
	select {
	case <-p.up:
		if p.err != nil {
			l.release(p)
			return nil, p.err
		}
		return p, nil
	case <-ctx.Done():
		l.release(p)
		return nil, context.Cause(ctx)
	}
}

// roomOfLocked is roomLocked for volumes of one owner, so that none has them
// all.
func (l *Pool) roomOfLocked(owner string) bool {
	n := 0
	var idle *process
	for _, p := range l.ps {
		if p.owner != owner {
			continue
		}
		if n++; p.users == 0 {
			idle = p
		}
	}
	if n < maxOfOwner {
		return true
	}
	if idle == nil {
		return false
	}
	delete(l.ps, idle.id)
	go idle.end()
	return true
}

// roomLocked reports whether there may be one more, once one that nobody asks
// has made room.
func (l *Pool) roomLocked() bool {
	if len(l.ps) < maxProcesses {
		return true
	}
	for id, p := range l.ps {
		if p.users == 0 {
			delete(l.ps, id)
			go p.end()
			return true
		}
	}
	return false
}

// run carries p from its start to its end.
func (l *Pool) run(p *process, t Target) {
	p.err = p.begin(l.o, t)
	if p.err != nil {
		close(p.gone)
	}
	close(p.up)
	<-p.gone
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ps[p.id] == p {
		delete(l.ps, p.id)
	}
}

func (l *Pool) release(p *process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.users--
	if p.users > 0 || l.ps[p.id] != p {
		return
	}
	p.idle = time.AfterFunc(l.o.Idle, func() {
		l.mu.Lock()
		unused := p.users == 0 && l.ps[p.id] == p
		if unused {
			delete(l.ps, p.id)
		}
		l.mu.Unlock()
		if unused {
			p.end()
		}
	})
}

// End ends the process of a volume, if it has one, and what it is doing. None
// begins for it until allow is called.
func (l *Pool) End(id string) (allow func()) {
	l.mu.Lock()
	l.doomed[id] = true
	p := l.ps[id]
	delete(l.ps, id)
	l.mu.Unlock()
	if p != nil {
		p.end()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.doomed, id)
	}
}

// Close ends all processes and lets none begin.
func (l *Pool) Close() {
	l.mu.Lock()
	l.closed = true
	var all []*process
	for id, p := range l.ps {
		all = append(all, p)
		delete(l.ps, id)
	}
	l.mu.Unlock()
	for _, p := range all {
		p.end()
	}
}
