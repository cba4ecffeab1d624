package session

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/carboy-sandbox/carboy/internal/session/quota"
	"github.com/carboy-sandbox/carboy/internal/session/record"
	"github.com/carboy-sandbox/carboy/internal/session/request"
)

// guard holds the workspace of one command to a soft quota: by looking before,
// while and after it runs. A nil guard looks at nothing.
type guard struct {
	dir    *os.File
	path   string
	key    string
	limits quota.Limits
	last   quota.Usage
	during *quota.Usage // what stopped the command
}

// errFull stops a command whose workspace has grown too large.
var errFull = errors.New("the workspace is over its quota")

// soft reports whether a workspace is held to its quota by looking alone.
func soft(w record.Workspace) bool { return w.Kind == record.HostDir && w.Quota == request.QuotaSoft }

// guard looks at a workspace before a command runs, and refuses one that is
// over its quota already. Where the file system holds it, that is seen to.
func (r *Runtime) guard(ctx context.Context, w record.Workspace, key string) (*guard, error) {
	if w.Project != 0 {
		return nil, r.hold(w)
	}
	if !soft(w) {
		return nil, nil
	}
	g, err := r.unchecked(w, key)
	if err != nil {
		return nil, err
	}
	if g.last, err = quota.Scan(ctx, g.dir, g.limits); err == nil {
		err = quota.Check(quota.Before, g.last, g.limits, g.path, key)
	}
	if err != nil {
		g.close()
		return nil, err
	}
	return g, nil
}

// unchecked opens a workspace that has a soft quota, to look at it.
func (r *Runtime) unchecked(w record.Workspace, key string) (*guard, error) {
	dir, err := open(w.Dir)
	if err != nil {
		return nil, err
	}
	g := &guard{dir: dir, path: w.Dir.Path, key: key, limits: quota.Limits{Bytes: w.Limit, Entries: r.c.Limits.MaxEntries}}
	if w.Inodes > 0 && w.Inodes < int64(g.limits.Entries) {
		g.limits.Entries = int(w.Inodes)
	}
	return g, nil
}

func (g *guard) close() {
	if g != nil {
		_ = g.dir.Close()
	}
}

// watch looks on while the command runs, and ends it by cancel. The returned
// function ends the watch.
func (g *guard) watch(ctx context.Context, cancel context.CancelCauseFunc, log *slog.Logger) (stop func()) {
	if g == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(ctx)
	w := &quota.Watch{Dir: g.dir, Limits: g.limits, Last: &g.last, Log: log, Exceeded: func(u quota.Usage) {
		g.during = &u
		cancel(errFull)
	}}
	var watching sync.WaitGroup
	watching.Go(func() { w.Run(ctx) })
	return func() { end(); watching.Wait() }
}

// after looks once more, and says what is over the quota, if anything is. cause
// is why the command ended, if not by itself.
func (g *guard) after(ctx context.Context, cause error) error {
	if g == nil {
		return nil
	}
	if g.during != nil {
		return quota.Check(quota.During, *g.during, g.limits, g.path, g.key)
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	u, err := quota.Scan(ctx, g.dir, g.limits)
	if err != nil {
		if cause != nil {
			return nil // which is said
		}
		return err
	}
	return quota.Check(quota.After, u, g.limits, g.path, g.key)
}
