// Package boxed runs pods in sandboxes: each has one with its name, on its parent's wall or a stronger one, with the
// volume that they share and what else its bounds say. The wall holds it to its scope: what it may write is all that can be written to
// of the shared workspace from inside.
//
// A child gets nothing of its parent's that it was not given: no mounts, no environment, no network, no secrets. Reading is
// not bound by scope: each pod can read the whole workspace.
//
// It refuses what walls can't hold: a rule to write that is not recursive.
package boxed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/agent"
	"github.com/carboy-sandbox/carboy/internal/pod"
	"github.com/carboy-sandbox/carboy/internal/pod/actor"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/transcript"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Label marks the sandbox that was made for a pod, with the token of its start.
const Label = sandbox.LabelPod

// Sandboxes is what is asked of the domain. *sandbox.Manager is one, and documents each method.
type Sandboxes interface {
	Create(ctx context.Context, c sandbox.Caller, spec sandbox.Spec, values sandbox.SecretValues) (*sandbox.Sandbox, error)
	Get(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) ([]*sandbox.Sandbox, error)
	Start(ctx context.Context, c sandbox.Caller, ref string) (*sandbox.Sandbox, error)
	Remove(ctx context.Context, c sandbox.Caller, ref string, force bool) error
	Delegate(ctx context.Context, c sandbox.Caller, ref string, d sandbox.Delegation) (ended []sandbox.Writer, err error)
	Dial(ctx context.Context, c sandbox.Caller, ref string, port int) (net.Conn, error)
	VolumeUsers(id string) []string
}

// Options make a Backend. All but Log are required.
type Options struct {
	Owner     string
	Sandboxes Sandboxes
	// Find returns a pod's record.
	Find func(name string) (record.Pod, bool)
	// Event is told what became of a pod's turns. It must not wait for the pod.
	Event func(p record.Pod, ev wire.PodEvent)
	// Stop is told of a pod that was asked to shut down, and must not wait for it.
	Stop func(name string)
	Dir  string // of transcripts; of the daemon's own
	Now  func() time.Time
	Log  *slog.Logger
}

// Backend starts and ends the sandboxes of an owner's pods. It is safe for concurrent use.
type Backend struct {
	o Options
	c sandbox.Caller

	mu      sync.Mutex
	actors  map[string]*opened // by the name of the transcript
	natives map[string]native  // what is known of those that speak the protocol themselves, by token
	closed  bool

	starts singleflight.Group // of natives' programs, by token
}

// opened is an actor, and the connections that it uses.
type opened struct {
	*actor.Actor
	guest *agent.Guest
}

var (
	_ pod.Backend = (*Backend)(nil)
	_ pod.Wall    = (*Backend)(nil)
)

// New makes a Backend.
func New(o Options) *Backend {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Backend{o: o, c: sandbox.Caller{Owner: o.Owner}, actors: map[string]*opened{}, natives: map[string]native{}}
}

// Start implements pod.Backend: a sandbox that can write what the pod's scope says, and no more.
func (b *Backend) Start(ctx context.Context, p record.Pod, l pod.Launch) (pod.Started, error) {
	spec, err := b.spec(ctx, p, l)
	if err != nil {
		return pod.Started{}, err
	}
	access, err := AccessOf(p.Scope())
	if err != nil {
		return pod.Started{}, err
	}
	sb, err := b.o.Sandboxes.Create(ctx, b.c, spec, nil)
	if err != nil {
		return pod.Started{}, err
	}
	_, err = b.o.Sandboxes.Delegate(ctx, b.c, sb.ID, sandbox.Delegation{Access: access, Held: true})
	if err == nil && p.Program.Native {
		err = b.launch(ctx, p, sb.ID)
	}
	if err != nil {
		return pod.Started{}, errors.Join(err, b.remove(context.WithoutCancel(ctx), sb.ID))
	}
	return pod.Started{Ref: sb.ID}, nil
}

// End implements pod.Backend.
func (b *Backend) End(ctx context.Context, p record.Pod) error {
	sb, err := b.Sandbox(ctx, p)
	if err == nil {
		err = b.remove(ctx, sb.ID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.Forget(p)
}

func (b *Backend) remove(ctx context.Context, id string) error {
	err := b.o.Sandboxes.Remove(ctx, b.c, id, true)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// Dial implements pod.Backend. A pod is gone when its sandbox is removed: one that is stopped is started by what it is sent.
func (b *Backend) Dial(ctx context.Context, p record.Pod) (net.Conn, error) {
	sb, err := b.Sandbox(ctx, p)
	if err != nil {
		return nil, err
	}
	if p.Program.Native {
		return b.join(ctx, p, sb)
	}
	a, err := b.Actor(p)
	if err != nil {
		return nil, err
	}
	return a.Connect(), nil
}

// Enforce implements pod.Wall. Of a pod whose sandbox is gone nothing can write.
func (b *Backend) Enforce(ctx context.Context, p record.Pod, s scope.Scope, how pod.Enforcing) error {
	access, err := AccessOf(s)
	if err != nil {
		return err
	}
	sb, err := b.Sandbox(ctx, p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ended, err := b.o.Sandboxes.Delegate(ctx, b.c, sb.ID, sandbox.Delegation{
		Access: access, Held: p.Token != "" || len(access) > 0, EndWriters: how.EndHolders,
	})
	for _, w := range ended {
		if how.Ended != nil {
			how.Ended(w.String())
		}
	}
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// Sandbox finds a pod's sandbox. Its error is an fs.ErrNotExist where there is none.
func (b *Backend) Sandbox(ctx context.Context, p record.Pod) (*sandbox.Sandbox, error) {
	if p.Ref != "" {
		sb, err := b.o.Sandboxes.Get(ctx, b.c, p.Ref)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil, gone(p)
		}
		return sb, err
	}
	if p.Token == "" {
		return nil, gone(p)
	}
	list, err := b.o.Sandboxes.List(ctx, b.c, sandbox.Filter{Labels: map[string]string{Label: p.Token}})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, gone(p)
	}
	return list[0], nil
}

func gone(p record.Pod) error { return fmt.Errorf("the sandbox of pod %s: %w", p.Name, fs.ErrNotExist) }

// Actor is what speaks for a pod.
func (b *Backend) Actor(p record.Pod) (*actor.Actor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, sandbox.ErrClosing
	}
	key := p.Key()
	if a := b.actors[key]; a != nil {
		return a.Actor, nil
	}
	log, err := transcript.Open(filepath.Join(b.o.Dir, key), 0)
	if err != nil {
		return nil, err
	}
	guest := agent.New(func(ctx context.Context) (net.Conn, error) {
		sb, err := b.Sandbox(ctx, b.now(p))
		if err != nil {
			return nil, err
		}
		return b.o.Sandboxes.Dial(ctx, b.c, sb.ID, sandbox.GuestPort)
	})
	a, err := actor.Open(actor.Options{
		Name: p.Name, Program: p.Program, Log: log, Guest: guest, Now: b.o.Now, Trace: b.o.Log,
		Ready: func(ctx context.Context) error {
			sb, err := b.Sandbox(ctx, b.now(p))
			if err == nil {
				_, err = b.o.Sandboxes.Start(ctx, b.c, sb.ID)
			}
			return err
		},
		Runs: func(ctx context.Context) (bool, error) {
			sb, err := b.Sandbox(ctx, b.now(p))
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return err == nil && sb.State == sandbox.StateRunning, err
		},
		Event: func(ev wire.PodEvent) { b.o.Event(b.now(p), ev) },
		Stop:  func() { b.o.Stop(p.Name) },
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b.actors[key] = &opened{a, guest}
	return a, nil
}

// now is a pod's record as it is, where it is still the same pod.
func (b *Backend) now(p record.Pod) record.Pod {
	if now, ok := b.o.Find(p.Name); ok && now.Token == p.Token {
		return now
	}
	return p
}

// Forget gives up what speaks for a pod, and what it said.
func (b *Backend) Forget(p record.Pod) error {
	b.mu.Lock()
	delete(b.natives, p.Token)
	b.mu.Unlock()
	return b.forget(p.Key())
}

func (b *Backend) forget(key string) error {
	b.mu.Lock()
	a := b.actors[key]
	delete(b.actors, key)
	b.mu.Unlock()
	if a != nil {
		a.close(b.o.Log)
	}
	return transcript.Remove(filepath.Join(b.o.Dir, key))
}

// Heard reports whether anything is kept that a pod, or a sandbox that was one, was told or has said, by its key.
func (b *Backend) Heard(key string) bool {
	_, err := os.Lstat(filepath.Join(b.o.Dir, key))
	return err == nil
}

// Sweep removes what pods said that nobody knows any more: the daemon was killed between a record and that, or a sandbox that
// delegated was removed. What one was told is kept as long as the sandbox is there.
func (b *Backend) Sweep(ctx context.Context, known []record.Pod) error {
	keep := map[string]bool{}
	for _, p := range known {
		keep[p.Key()] = true
	}
	files, err := os.ReadDir(b.o.Dir)
	if err != nil {
		return fmt.Errorf("list the transcripts of pods: %w", err)
	}
	var errs []error
	for _, f := range files {
		key := strings.TrimSuffix(f.Name(), transcript.NewSuffix)
		if keep[key] || f.Name() == key && b.sandboxOf(ctx, key) {
			continue
		}
		errs = append(errs, b.forget(key))
	}
	return errors.Join(errs...)
}

// sandboxOf reports whether the sandbox is there that has a key and is no pod, or whether that is not known.
func (b *Backend) sandboxOf(ctx context.Context, key string) bool {
	i := strings.LastIndexByte(key, '-')
	if i < 0 {
		return false
	}
	_, err := b.o.Sandboxes.Get(ctx, b.c, key[i+1:])
	return sandbox.KindOf(err) != sandbox.NotFound
}

func (o *opened) close(log *slog.Logger) {
	if err := o.Close(); err != nil {
		log.Warn("close the transcript of a pod", "error", err)
	}
	o.guest.Close()
}

// Close gives up what speaks for pods. They go on.
func (b *Backend) Close() {
	b.mu.Lock()
	b.closed = true
	all := b.actors
	b.actors = nil
	b.mu.Unlock()
	for _, a := range all {
		a.close(b.o.Log)
	}
}
