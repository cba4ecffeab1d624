package sandbox

import (
	"context"
	"errors"
	"net"
	"slices"
)

// Agent says which agent a sandbox was made for: it is shown, and gone on with, and promises
// nothing.
type Agent struct {
	Name      string   `json:"name,omitempty"`
	Bottle    string   `json:"bottle,omitempty"`
	Digest    string   `json:"digest,omitempty"` // SHA-256 of its file
	Provider  string   `json:"provider"`
	Program   []string `json:"program"`
	Dir       string   `json:"dir"`
	Base      string   `json:"base,omitempty"`      // the commit that it began with
	Prompt    string   `json:"prompt,omitempty"`    // the file that its prompt is in
	Command   []string `json:"command,omitempty"`   // what is run for it
	Authority string   `json:"authority,omitempty"` // SHA-256 of its gate's certificate
}

func (a *Agent) clone() *Agent {
	if a == nil {
		return nil
	}
	c := *a
	c.Program, c.Command = slices.Clone(a.Program), slices.Clone(a.Command)
	return &c
}

// SetUp readies an instance that answers for an agent, and says what is to be remembered of
// that. dial connects to its guest agent, and note writes an event. What was done by one that
// fails is undone with the sandbox.
type SetUp func(ctx context.Context, sb *Sandbox, dial func(context.Context) (net.Conn, error), note func(Event)) (*Agent, error)

type setUpKey struct{}

// WithSetUp has a Create with the context returned do f before the sandbox counts as made.
// Where f fails, where ctx ends before and where the daemon is killed meanwhile, nothing of it
// is left.
func WithSetUp(ctx context.Context, f SetUp) context.Context {
	return context.WithValue(ctx, setUpKey{}, f)
}

// setUp does what the create of sb asked for, until somebody stops or removes it.
func (l *lives) setUp(ctx context.Context, e *entry, b Backend, sb *Sandbox) (*Agent, error) {
	f, ok := ctx.Value(setUpKey{}).(SetUp)
	if !ok {
		return sb.Spec.Agent, nil
	}
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	l.registry.settingUp(e, interrupt)
	defer l.registry.settingUp(e, nil)
	a, err := l.runSetUp(ctx, b, sb, f)
	if cause, ok := errors.AsType[*Error](context.Cause(ctx)); err != nil && ok {
		return nil, cause
	}
	return a, err
}

// settingUp says by what a set-up under way is interrupted; nil: it is over.
func (r *registry) settingUp(e *entry, interrupt context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.interrupt = interrupt
	if interrupt != nil && e.unwanted != nil {
		interrupt(e.unwanted)
	}
}

// interruptSetUp ends the set-up of a sandbox that is being created, which what runs inside can
// make last, and with it the create. It reports whether there is one; done is what was asked
// for in its place, such as "removed".
func (m *Manager) interruptSetUp(c Caller, ref, done string) bool {
	if m.ops.ready(c) != nil {
		return false
	}
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.findLocked(c, ref)
	if err != nil || e.sb.State != StateCreated {
		return false
	}
	e.unwanted = Errorf(Conflict, "sandbox %s: it was %s while it was set up", e.sb.Spec.Name, done)
	if e.interrupt != nil {
		e.interrupt(e.unwanted)
	}
	return true
}

func (l *lives) runSetUp(ctx context.Context, b Backend, sb *Sandbox, f SetUp) (*Agent, error) {
	a, err := f(ctx, sb, func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, sb.ID, GuestPort) }, func(ev Event) {
		l.note(ctx, sb, ev.Type, "%s", ev.Message)
	})
	if err == nil {
		return a, nil
	}
	if _, held := l.disk.Held(sb.ID); held && ctx.Err() == nil {
		_, at := l.disk.Room()
		return nil, Errorf(Exhausted, "%w: %s is full, and what the sandbox writes waits for room there", err, diskAt(sb.Owner, at)).
			WithHint("free some space there, or carboy rm what is not needed")
	}
	return nil, err
}

// SetUp does f in a sandbox that runs, and writes down what is to be remembered. It takes no turn for
// what a guest can make last: who stops or removes the sandbox ends it. After an error the sandbox is as
// f left it.
func (m *Manager) SetUp(ctx context.Context, c Caller, ref string, f SetUp) (*Sandbox, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	_, sb, b, err := m.running(c, ref)
	if err != nil {
		return nil, err
	}
	a, err := m.lives.runSetUp(ctx, b, sb.Clone(), f)
	if err != nil {
		return nil, failure(err, sb.Spec.Name, "set it up")
	}
	return m.change(ctx, c, sb.ID, func(ctx context.Context, e *entry) error {
		now := m.registry.record(e).Clone()
		if now.State != StateRunning || now.Starts != sb.Starts {
			return Errorf(Conflict, "sandbox %s: it was stopped while it was set up", sb.Spec.Name).WithHint("try again")
		}
		now.Spec.Agent = a
		return m.lives.save(ctx, e, now)
	})
}
