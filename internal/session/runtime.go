package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/carboy-sandbox/carboy/api/box"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// Runtime has the sessions of all owners. An owner's do not exist for another,
// unless that is an admin, to whom they all are there; where two owners have a
// session of the same key, an admin's own comes first.
//
// Calls of different sessions never wait for each other. Of one session,
// commands run in the order in which they came; everything else goes beside
// them.
type Runtime struct {
	o     Options
	c     Config
	clock sandbox.Clock
	log   *slog.Logger

	randMu sync.Mutex
	rand   io.Reader
}

// New returns a Runtime, or an error where o lacks what is required or its
// Config can't be. It touches nothing: call Open before anything else, and Run
// beside it.
func New(o Options) (*Runtime, error) {
	if o.Manager == nil || o.Store == nil {
		return nil, errors.New("new session runtime: a manager and a store are required")
	}
	if err := o.Config.Validate(); err != nil {
		return nil, err
	}
	r := &Runtime{o: o, c: o.Config.WithDefaults(), clock: o.Clock, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), rand: o.Rand}
	if r.clock == nil {
		r.clock = systemClock{}
	}
	if r.rand == nil {
		r.rand = rand.Reader
	}
	return r, nil
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Open reads the records, ends what an earlier daemon left half done, and
// takes over the sessions that are there with their processes. The Manager
// must have adopted its sandboxes.
func (r *Runtime) Open(ctx context.Context) error { return nil }

// Run reaps what is idle until ctx ends.
func (r *Runtime) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Close refuses further calls and ends those under way. Sessions and their
// processes go on.
func (r *Runtime) Close() {}

// Declare says what an owner's client calls its own host_root and
// default_workspace: paths of a file system that may be another than this
// one. A session's path below one of them that is not allowed here becomes a
// volume of the owner's.
func (r *Runtime) Declare(owner string, roots ...string) {}

// Create makes a session, or takes the one that is there into use: then the
// fields of spec that shape a session must be what it has, or the error has a
// *ConflictError. Where only its extra mounts differ it is made anew.
func (r *Runtime) Create(ctx context.Context, c sandbox.Caller, spec box.Spec) (box.SessionInfo, error) {
	return box.SessionInfo{}, errUnready
}

// Exec runs spec.Cmd in the session that Create would return. A command that
// ended, by whatever, is a Result; so is one whose time was up.
func (r *Runtime) Exec(ctx context.Context, c sandbox.Caller, spec box.Spec) (*Result, error) {
	return nil, errUnready
}

// Get returns a session, with its managed processes.
func (r *Runtime) Get(ctx context.Context, c sandbox.Caller, id string) (box.SessionInfo, error) {
	return box.SessionInfo{}, errUnready
}

// List returns the caller's sessions, and everyone's to an admin, oldest first,
// those that sleep among them.
func (r *Runtime) List(ctx context.Context, c sandbox.Caller) ([]box.SessionInfo, error) {
	return nil, errUnready
}

// Delete ends a session, its processes and the commands in it, and deletes its
// sandbox. It waits for a creation that is under way.
func (r *Runtime) Delete(ctx context.Context, c sandbox.Caller, id string) error { return errUnready }

// DropAll deletes the sessions of an owner, or of all for "", whose key match
// accepts; nil accepts all.
func (r *Runtime) DropAll(ctx context.Context, owner string, match func(id string) bool) error {
	return errUnready
}

// StartProcess starts a managed process in a session that is there. One that
// runs under the same ID is ended first.
func (r *Runtime) StartProcess(ctx context.Context, c sandbox.Caller, id string, spec box.ProcessSpec) (box.ProcessInfo, error) {
	return box.ProcessInfo{}, errUnready
}

// Process returns a managed process, which may have ended.
func (r *Runtime) Process(ctx context.Context, c sandbox.Caller, id, pid string) (box.ProcessInfo, error) {
	return box.ProcessInfo{}, errUnready
}

// StopProcess ends a managed process and all that it started, and forgets it.
func (r *Runtime) StopProcess(ctx context.Context, c sandbox.Caller, id, pid string) error {
	return errUnready
}

// Status says what there is.
func (r *Runtime) Status(ctx context.Context, c sandbox.Caller) (box.RuntimeStatus, error) {
	return box.RuntimeStatus{}, errUnready
}

// Backend says which wall sessions are behind, and whether it can be had.
func (r *Runtime) Backend(ctx context.Context) box.Backend { return box.Backend{} }

// Metrics returns what was counted.
func (r *Runtime) Metrics() Metrics { return Metrics{} }

// Use takes a session into use that Create would return. Until its Release the
// session is not idle.
func (r *Runtime) Use(ctx context.Context, c sandbox.Caller, spec box.Spec) (*Use, error) {
	return nil, errUnready
}

// Use is a session in use by something else than a command.
type Use struct{ info box.SessionInfo }

// Info returns the session as it was when the Use began.
func (u *Use) Info() box.SessionInfo { return u.info }

// Notices are what the user should know of what became of the session.
func (u *Use) Notices() []string { return u.info.Notices }

// Dial connects to its guest agent.
func (u *Use) Dial(ctx context.Context) (net.Conn, error) { return nil, errUnready }

// Release ends the Use. Calling it again does nothing.
func (u *Use) Release() {}

var errUnready = sandbox.Errorf(sandbox.Unavailable, "sessions are not read yet").WithHint("try again")
