package files

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
)

// polled is a watcher whose events wait to be collected.
type polled struct {
	all    *watchers
	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	bytes  int64 // of events, about
	err    error // why no more come
}

func (p *polled) add(events []*filesystem.FilesystemEvent) error {
	size := int64(0)
	for _, e := range events {
		size += eventOverhead + int64(proto.Size(e))
	}
	p.all.makeRoom(size)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.bytes += size
	p.all.bytes.Add(size)
	if len(p.events)+len(events) > maxPending || p.bytes > maxPendingBytes {
		p.takeLocked()
		return &fault{connect.CodeDataLoss, errLost}
	}
	p.events = append(p.events, events...)
	return nil
}

// giveUp forgets what waits of a watcher, which fails by that.
func (p *polled) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = &fault{connect.CodeDataLoss, errLost}
	}
	p.takeLocked()
}

func (p *polled) waiting() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// takeLocked returns the events that wait, which wait no more.
func (p *polled) takeLocked() []*filesystem.FilesystemEvent {
	events := p.events
	p.all.bytes.Add(-p.bytes)
	p.events, p.bytes = nil, 0
	return events
}

// drop forgets what waits.
func (p *polled) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takeLocked()
}

// CreateWatcher is WatchDir for callers who poll.
func (s *Service) CreateWatcher(ctx context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	w, err := s.openWatch(ctx, req.Header(), req.Msg)
	if err != nil {
		return nil, rpcError(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p, done := &polled{all: s.watches}, make(chan struct{})
	id, err := s.watches.add(p, func() { cancel(ErrClosed); <-done; p.drop() })
	if err != nil {
		cancel(err)
		w.tree.close()
		return nil, rpcError(err)
	}
	go func() {
		defer close(done)
		err := w.run(ctx, p.add)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
	}()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents collects the events since the last call. A watcher that
// failed says why, from then on.
func (s *Service) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	p := s.watches.polled(req.Msg.GetWatcherId())
	if p == nil {
		return nil, rpcError(noWatcher(req.Msg.GetWatcherId()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	events := p.takeLocked()
	if len(events) == 0 && p.err != nil {
		return nil, rpcError(p.err)
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher ends a watcher.
func (s *Service) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	id := req.Msg.GetWatcherId()
	if s.watches.polled(id) == nil || !s.watches.remove(id) {
		return nil, rpcError(noWatcher(id))
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

func noWatcher(id string) error {
	return faultf(connect.CodeNotFound, "no watcher has the id %.64q", id)
}

// watchers are all that are open.
type watchers struct {
	bytes  atomic.Int64 // that wait in polled ones
	mu     sync.Mutex
	closed bool
	open   map[string]watcher
}

type watcher struct {
	polled *polled // nil for a stream
	stop   func()
}

func newWatchers() *watchers { return &watchers{open: make(map[string]watcher)} }

// add makes room for a watcher; p is nil for a stream.
func (w *watchers) add(p *polled, stop func()) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return "", ErrClosed
	}
	if len(w.open) >= maxWatchers {
		return "", faultf(connect.CodeResourceExhausted, "%d watchers are open already; remove one", maxWatchers)
	}
	id := "w" + rand.Text()
	w.open[id] = watcher{p, stop}
	return id, nil
}

// makeRoom ends the watcher for which most waits where there is no room for all.
func (w *watchers) makeRoom(size int64) {
	for w.bytes.Load()+size > maxAllBytes {
		var most *polled
		var waits int64
		w.mu.Lock()
		for _, one := range w.open {
			if one.polled == nil {
				continue
			}
			if n := one.polled.waiting(); n > waits {
				most, waits = one.polled, n
			}
		}
		w.mu.Unlock()
		if most == nil {
			return
		}
		most.giveUp()
	}
}

func (w *watchers) polled(id string) *polled {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[id].polled
}

// remove stops a watcher, waits for it, and reports whether it was there.
func (w *watchers) remove(id string) bool {
	w.mu.Lock()
	wt, ok := w.open[id]
	delete(w.open, id)
	w.mu.Unlock()
	if ok {
		wt.stop()
	}
	return ok
}

func (w *watchers) close() {
	w.mu.Lock()
	w.closed = true
	open := w.open
	w.open = make(map[string]watcher)
	w.mu.Unlock()
	for _, wt := range open {
		wt.stop()
	}
}
