// Package pod spawns agents for agents: each gets a part of what its parent may do with the
// files that both see, and the parent gets it back when the child has ended. Records say who
// has what; a backend starts and ends what pods run in; a wall makes of a scope what a pod
// can really do.
//
// At no moment may two pods write the same path: a parent loses the right before its child is
// started, and has it again after the child has ended, wherever the daemon died in between. Whether a
// pod is alive its socket says, and nothing else; what could not be found out is no death.
//
// It refuses to guess: a scope that is not within its parent's is refused with the reason, and
// after a task was sent nothing of its pod is undone.
package pod

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	wire "github.com/carboy-sandbox/carboy/client/pod"
	"github.com/carboy-sandbox/carboy/internal/backend/procid"
	"github.com/carboy-sandbox/carboy/internal/home"
	"github.com/carboy-sandbox/carboy/internal/pod/record"
	"github.com/carboy-sandbox/carboy/internal/pod/tree"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/scope"
)

// Store keeps the records of pods: their one truth.
type Store interface {
	// Pods returns an owner's records, in the order of their names.
	Pods(ctx context.Context, owner string) ([]record.Pod, error)
	// ChangePods puts records of an owner's in their place and deletes others, all of it or, where
	// it fails, nothing. When it returns the change outlives the process. A name that has no record is
	// no error.
	ChangePods(ctx context.Context, owner string, put []record.Pod, gone []string) error
}

// Launch is what a child is started with.
type Launch struct {
	Config Config
	Cwd    string // the spawner's; "": the backend's choice
	Env    map[string]string
}

// Config is what a child is told of itself. It may stand on a command line: there are no
// secrets in it, and Model names those that it needs.
type Config struct {
	Protocol    int          `json:"protocol"` // the newest version that its parent speaks
	Name        string       `json:"name"`
	Parent      string       `json:"parent"`
	Callback    string       `json:"callback"` // the parent's socket
	Socket      string       `json:"socket"`   // where it has to listen
	Scope       []scope.Rule `json:"scope"`
	Instruction string       `json:"instruction"`
	Model       any          `json:"model,omitempty"`
}

// Started is what came of a start, fit to be stored.
type Started struct {
	Ref     string    // what the backend calls it; "" where the record's token says enough
	Process procid.ID // its first process, where there is one on this machine
}

// Backend starts and ends what pods run in.
type Backend interface {
	// Start starts a pod, whose record is written, and does not wait for its socket. What it
	// makes is known by the record's token from the first moment on. After an error nothing is left.
	Start(ctx context.Context, p record.Pod, l Launch) (Started, error)
	// End ends what Start made for the record's token, also where Start did not return, and
	// returns once nothing of it can write. What is gone already is no error.
	End(ctx context.Context, p record.Pod) error
	// Dial connects to a pod's socket. What its error says of the pod, package client/pod's
	// LivenessOf knows.
	Dial(ctx context.Context, p record.Pod) (net.Conn, error)
}

// Wall makes of a scope what a pod can do.
type Wall interface {
	// Enforce returns once the pod can do no more than s allows, at whatever path, and no less. It
	// is called again with the same. Where it fails, the pod can do nothing that it could not
	// do before.
	Enforce(ctx context.Context, p record.Pod, s scope.Scope, how Enforcing) error
}

// Enforcing is how a scope is enforced.
type Enforcing struct {
	// EndHolders has what the pod runs ended that could go on writing where the pod may not any more. Otherwise that is an error.
	EndHolders bool
	// Ended is told what was ended, in words; nil: nobody.
	Ended func(what string)
}

// Resolver finds out what paths of a workspace are: see package target.
type Resolver interface {
	Resolve(ctx context.Context, workspace, path string) (string, error)
}

// teller is a Backend that knows what its pods wrote to their standard error.
type teller interface {
	// Stderr returns where it is kept, and the last of it.
	Stderr(p record.Pod) (name string, tail []byte)
}

// Times are how long things may take.
type Times struct {
	Socket  time.Duration // until a child's socket accepts; default: 10 s
	Poll    time.Duration // between two looks at it; default: 50 ms
	Deliver time.Duration // until a task is confirmed; default: 5 s
	Probe   time.Duration // until one attempt at a socket is Unknown; default: 500 ms
	End     time.Duration // to undo or end something; default: 30 s
}

// Options make a Registry.
type Options struct {
	Owner    string
	Store    Store
	Backend  Backend
	Wall     Wall          // nil: none besides the scopes that tools ask
	Resolver Resolver      // nil: paths are taken as they are
	Base     string        // the runtime directory, in which pods have theirs, and mirrors lie
	Clock    sandbox.Clock // default: the machine's
	Log      *slog.Logger  // default: discard
	Times    Times
	// Token draws the token of a start; default: by chance.
	Token func() string
	// Step is told which step of a spawn or an end was just done. Its error is that step's.
	Step func(step Step) error
}

// Registry is the pods of an owner. Its methods may be called from several goroutines.
type Registry struct {
	o     Options
	names locks // held by who changes the life of a pod of that name
	walls locks // held by who enforces the scope of a pod of that name

	mu    sync.Mutex
	tree  *tree.Tree
	held  map[string]int      // pods that somebody in this process holds a guard of
	cells map[string]*cell    // what tools ask
	owed  map[string]struct{} // pods whose scope is to be enforced, and could not be
	seq   int                 // of the newest change
	// unsure says that a write failed, and what is written could not be read since.
	unsure bool

	showing sync.Mutex // held by who writes mirrors
	shown   int        // the newest change that they show; guarded by showing

	background sync.WaitGroup
	ctx        context.Context // ends what is in the background
	cancel     context.CancelCauseFunc
}

// cell is a scope that tools of a pod ask.
type cell struct {
	shared  *scope.Shared
	applied []scope.Rule
}

// Open reads an owner's records. What earlier lives left half done, Settle finishes: it is
// to be called before anything else.
func Open(ctx context.Context, o Options) (*Registry, error) {
	defaults(&o)
	t, err := read(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &Registry{o: o, tree: t, held: map[string]int{}, cells: map[string]*cell{}, owed: map[string]struct{}{}}
	if o.Base != "" {
		if err := home.Make(o.Base, 0o700); err != nil {
			return nil, err
		}
	}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	for _, p := range t.All() {
		r.owed[p.Name] = struct{}{}
	}
	return r, nil
}

// Close ends what goes on in the background. Pods go on.
func (r *Registry) Close() {
	r.cancel(net.ErrClosed)
	r.background.Wait()
}

// Find returns a pod's record.
func (r *Registry) Find(name string) (record.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.Find(name)
}

// All are the pods, in the order of their names.
func (r *Registry) All() []record.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.All()
}

// Children are the pods to which one delegated, in the order of their names.
func (r *Registry) Children(name string) []record.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.Children(name)
}

// Descends reports whether a pod stands below another: whom alone that one may speak to.
func (r *Registry) Descends(name, of string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.Descends(name, of)
}

// Effective is what a pod may do now, without writing where its children write.
func (r *Registry) Effective(name string) scope.Scope {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.Effective(name)
}

// HolderOf finds the pod that holds a segment of a conversation.
func (r *Registry) HolderOf(segment string) (record.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree.HolderOf(segment)
}

// Liveness tries a pod's socket.
func (r *Registry) Liveness(ctx context.Context, p record.Pod) wire.Liveness {
	if ctx.Err() != nil {
		return wire.Unknown
	}
	ctx, cancel := r.within(ctx, r.o.Times.Probe, "the pod's socket was tried for %v")
	defer cancel()
	c, err := r.o.Backend.Dial(ctx, p)
	if err == nil {
		c.Close()
	} else if ctx.Err() != nil {
		return wire.Unknown
	}
	return wire.LivenessOf(err)
}
