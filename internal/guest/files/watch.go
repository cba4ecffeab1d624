package files

import (
	"context"
	"net/http"
	"os"
	"path"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/carboy-sandbox/carboy/api/envd/filesystem"
	"github.com/carboy-sandbox/carboy/internal/guest/account"
)

const (
	maxWatchers      = 256     // of all users, streams included
	maxPending       = 1 << 14 // events of a watcher that wait to be collected
	maxPendingBytes  = 8 << 20
	maxAllBytes      = 32 << 20 // those of all watchers
	defaultKeepAlive = 90 * time.Second
	maxKeepAlive     = 24 * time.Hour
	eventOverhead    = 128 // bytes of an event beyond its message, about
)

// The kinds of file system whose changes come from elsewhere unseen.
var networkMounts = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true,
	unix.SMB2_SUPER_MAGIC: true, unix.FUSE_SUPER_MAGIC: true,
}

// watchRequest is what WatchDir and CreateWatcher are asked.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// watch is one watched directory and whose rights it has.
type watch struct {
	s       *Service
	account account.Account
	tree    *watchTree
	entries bool // add what is at the changed path
}

// WatchDir streams what changes in a directory, until the caller leaves or
// events were lost. The first message says that the watch is in place.
func (s *Service) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	w, err := s.openWatch(ctx, req.Header(), req.Msg)
	if err != nil {
		return rpcError(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	run := &watchRun{batches: make(chan []*filesystem.FilesystemEvent), done: make(chan struct{})}
	id, err := s.watches.add(nil, func() { cancel(ErrClosed); <-run.done })
	if err != nil {
		w.tree.close()
		return rpcError(err)
	}
	defer s.watches.remove(id)
	go run.collect(ctx, w)
	if err := run.send(stream, keepAlive(req.Header())); err != nil {
		return err // the caller is gone
	}
	return rpcError(run.err)
}

// watchRun carries events from where they are collected to where they are
// sent.
type watchRun struct {
	batches chan []*filesystem.FilesystemEvent
	done    chan struct{} // closed when no more will come; err says why
	err     error
}

func (r *watchRun) collect(ctx context.Context, w *watch) {
	defer close(r.done)
	r.err = w.run(ctx, func(events []*filesystem.FilesystemEvent) error {
		select {
		case r.batches <- events:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// send sends until no more events will come, or sending fails.
func (r *watchRun) send(stream *connect.ServerStream[filesystem.WatchDirResponse], every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	err := stream.Send(&filesystem.WatchDirResponse{
		Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}},
	})
	for err == nil {
		select {
		case <-r.done:
			return nil
		case <-tick.C:
			err = stream.Send(&filesystem.WatchDirResponse{
				Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}},
			})
		case events := <-r.batches:
			err = sendBatch(stream, events)
			tick.Reset(every)
		}
	}
	return err
}

func sendBatch(stream *connect.ServerStream[filesystem.WatchDirResponse], events []*filesystem.FilesystemEvent) error {
	for _, e := range events {
		err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepAlive is how often a quiet stream says that it lives.
func keepAlive(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval"))
	if err != nil || n <= 0 || time.Duration(n) > maxKeepAlive/time.Second {
		return defaultKeepAlive
	}
	return time.Duration(n) * time.Second
}

// openWatch checks a request and starts the watch, as the user.
func (s *Service) openWatch(ctx context.Context, h http.Header, req watchRequest) (*watch, error) {
	a, err := s.who(h, "")
	if err != nil {
		return nil, err
	}
	p, err := s.resolve(a, req.GetPath())
	if err != nil {
		return nil, err
	}
	t, err := newWatchTree(&s.notifier, p, req.GetRecursive())
	if err != nil {
		return nil, err
	}
	err = s.act(ctx, a, func() error {
		if err := watchable(p, req.GetAllowNetworkMounts()); err != nil {
			return err
		}
		return t.open()
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return &watch{s: s, account: a, tree: t, entries: req.GetIncludeEntry()}, nil
}

func watchable(p string, network bool) error {
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return faultf(connect.CodeInvalidArgument, "%s is not a directory", p)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(p, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: p, Err: err}
	}
	if !network && networkMounts[fs.Type] {
		return faultf(connect.CodeInvalidArgument,
			"%s is on a network file system, whose changes may not be seen; allow_network_mounts watches it all the same", p)
	}
	return nil
}

// run hands out events until ctx ends or the watch fails. It closes the watch.
func (w *watch) run(ctx context.Context, emit func([]*filesystem.FilesystemEvent) error) error {
	defer w.tree.close()
	for {
		raw, err := w.tree.read(ctx)
		if err != nil {
			return err
		}
		var events []*filesystem.FilesystemEvent
		err = w.s.workers.Do(ctx, w.account, func() error {
			changes, err := w.tree.handle(raw)
			events = w.describe(changes)
			return err
		})
		if err != nil {
			return err
		}
		if len(events) == 0 {
			continue
		}
		if err := emit(events); err != nil {
			return err
		}
	}
}

// describe makes events of changes. What was removed or moved away gets no
// entry: another may be in its place by now.
func (w *watch) describe(changes []change) []*filesystem.FilesystemEvent {
	events := make([]*filesystem.FilesystemEvent, 0, len(changes))
	names := w.s.names.load()
	for _, c := range changes {
		e := &filesystem.FilesystemEvent{Name: toValid(c.name), Type: c.typ}
		gone := c.typ == filesystem.EventType_EVENT_TYPE_REMOVE || c.typ == filesystem.EventType_EVENT_TYPE_RENAME
		if w.entries && !gone {
			e.Entry, _ = entry(path.Join(w.tree.root, c.name), names)
		}
		events = append(events, e)
	}
	return events
}
