// Package service is the pods of a daemon: each owner's, by the sandboxes that they run in. It turns a sandbox into a pod when something is
// delegated to another for the first time, and back when nothing is any more.
//
// It refuses to make a pod of a sandbox whose workspace is no volume: what pods share is one.
package service

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/boxed"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/target"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Store keeps records of pods.
type Store interface {
	pod.Store
	// PodOwners are those who have any.
	PodOwners(ctx context.Context) ([]string, error)
}

// Volumes has the workspaces of pods. *volume.Service is one.
type Volumes interface {
	Look(ctx context.Context, owner, id, rel string) (kind, link string, err error)
}

// Options make a Service. All but Log are required.
type Options struct {
	Store     Store
	Sandboxes boxed.Sandboxes
	Volumes   Volumes
	Dir       string // of transcripts; of the daemon's own
	Log       *slog.Logger
}

// Service is the pods of all owners. Its methods may be called from several goroutines.
type Service struct {
	o Options

	mu     sync.Mutex
	owners map[string]*pods
	closed bool
}

// pods are an owner's.
type pods struct {
	*pod.Registry
	box *boxed.Backend
	log *slog.Logger

	ctx     context.Context // ends what goes on in the background
	cancel  context.CancelFunc
	watches sync.WaitGroup

	removed chan struct{} // has room for one: a sandbox was removed

	reaping sync.Mutex // held while pods that are gone are ended

	read      *cursors
	snapshots chan struct{} // has room for as many as are read at once: each may be long

	mu    sync.Mutex
	ended []record.Pod               // those that are gone, until they were listed once
	news  map[string][]wire.PodEvent // what natives, by token, are still to hear
}

// New makes a Service. Nothing is touched before it is asked.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{o: o, owners: map[string]*pods{}}
}

// Adopt finishes what an earlier daemon left half done, and takes up what pods are saying. The sandboxes are adopted.
func (s *Service) Adopt(ctx context.Context) error {
	owners, err := s.o.Store.PodOwners(ctx)
	if err != nil {
		return err
	}
	dirs, err := os.ReadDir(s.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the transcripts of pods: %w", err)
	}
	for _, d := range dirs { // of owners who have no pods any more, too
		if owner, err := hex.DecodeString(d.Name()); err == nil {
			owners = append(owners, string(owner))
		}
	}
	slices.Sort(owners)
	for _, owner := range slices.Compact(owners) {
		p, err := s.of(ctx, owner)
		if err != nil {
			return err
		}
		if err := s.tidy(ctx, p); err != nil {
			p.look()
		}
		s.sweep(ctx, p)
		for _, one := range p.All() {
			if one.State != record.Live && one.State != record.Delivering {
				continue
			}
			p.listen(one, false)
		}
	}
	return nil
}

// of are an owner's pods.
func (s *Service) of(ctx context.Context, owner string) (*pods, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, sandbox.ErrClosing
	}
	if p := s.owners[owner]; p != nil {
		return p, nil
	}
	dir := filepath.Join(s.o.Dir, hex.EncodeToString([]byte(owner)))
	if err := home.Make(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pods{
		news: map[string][]wire.PodEvent{}, removed: make(chan struct{}, 1), snapshots: make(chan struct{}, maxSnapshots), log: s.o.Log,
		read: openCursors(dir+".read", s.o.Log),
	}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.box = boxed.New(boxed.Options{
		Owner: owner, Sandboxes: s.o.Sandboxes, Dir: dir, Now: time.Now, Log: s.o.Log,
		Find:  func(name string) (record.Pod, bool) { return p.Find(name) },
		Event: func(of record.Pod, ev wire.PodEvent) { p.tell(of.Parent, ev) },
		Stop: func(name string) {
			go func() {
				if _, err := s.Stop(context.WithoutCancel(ctx), sandbox.Caller{Owner: owner}, name); err != nil {
					s.o.Log.Warn("stop a pod that was asked to shut down", "pod", name, "error", err)
				}
			}()
		},
	})
	r, err := pod.Open(ctx, pod.Options{
		Owner: owner, Store: s.o.Store, Backend: p.box, Wall: p.box, Resolver: volumes{s.o.Volumes, owner}, Log: s.o.Log,
		Times: pod.Times{Deliver: timeTalk},
	})
	if err != nil {
		return nil, err
	}
	p.Registry = r
	s.owners[owner] = p
	p.watches.Go(func() { s.reapRemoved(p) })
	return p, nil
}

// Close gives up what this end holds. Pods go on.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.owners
	s.owners = nil
	s.mu.Unlock()
	for _, p := range all {
		p.cancel()
		p.Close()
		p.box.Close()
		p.watches.Wait()
	}
}

// listen takes up what a pod says; fresh: it was given its first task just now.
func (p *pods) listen(r record.Pod, fresh bool) {
	if r.Program.Native {
		if r.Confirmed && fresh {
			p.box.Given(r)
		}
		p.watches.Go(func() { p.box.Watch(p.ctx, r) })
		return
	}
	if _, err := p.box.Actor(r); err != nil {
		p.log.Warn("take up what a pod says", "pod", r.Name, "error", err)
	}
}

// volumes resolves the paths of an owner's pods, whose workspaces are volumes.
type volumes struct {
	all   Volumes
	owner string
}

// Resolve implements pod.Resolver.
func (v volumes) Resolve(ctx context.Context, workspace, path string) (string, error) {
	return target.Of(tree{v, workspace}, sandbox.WorkspacePath).Resolve(ctx, workspace, path)
}

// tree is a volume.
type tree struct {
	volumes
	id string
}

// Look implements target.Tree.
func (t tree) Look(ctx context.Context, rel string) (target.Entry, error) {
	kind, link, err := t.all.Look(ctx, t.owner, t.id, rel)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return target.Entry{}, errors.Join(err, fs.ErrNotExist)
	case err != nil:
		return target.Entry{}, err
	}
	return target.Entry{Link: link, Dir: kind == "directory"}, nil
}
