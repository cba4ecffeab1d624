package sandbox

import (
	"context"
	"io"
	"net"
	"strings"
	"time"

	"github.com/carboy-sandbox/carboy/api/guest"
)

// deathTimeout is how long an instance whose guest does not answer may take to be
// known as ended.
const deathTimeout = 2 * time.Second

// Dial connects to a port of a running sandbox; ctx bounds the dialling
// alone. Where the instance turns out to have ended the sandbox is stopped before
// Dial returns, and EnsureRunning may start it again.
func (m *Manager) Dial(ctx context.Context, c Caller, ref string, port int) (net.Conn, error) {
	if port < 1 || port > 65535 {
		return nil, Errorf(Invalid, "port %d: there is no such port", port).WithHint("from 1 to 65535")
	}
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	e, sb, b, err := m.running(c, ref)
	if err != nil {
		return nil, err
	}
	conn, err := b.Dial(ctx, sb.ID, port)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, failure(context.Cause(ctx), ref, "reach it")
	}
	return nil, m.unreachable(ctx, e, sb, b, port, err)
}

// running finds a sandbox that runs, and its backend.
func (m *Manager) running(c Caller, ref string) (*entry, *Sandbox, Backend, error) {
	e, sb, err := m.registry.find(c, ref)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := mustRun(sb); err != nil {
		return nil, nil, nil, err
	}
	b, err := m.lives.backends.of(sb)
	return e, sb, b, err
}

// mustRun says why sb can't be used as it is.
func mustRun(sb *Sandbox) error {
	name := sb.Spec.Name
	switch sb.State {
	case StateRunning:
		return nil
	case StateStopped:
		state := "stopped"
		if sb.Ended == EndPaused {
			state = "paused"
		}
		return Errorf(Conflict, "sandbox %s: it is %s", name, state).WithHint("carboy start %s", name)
	case StateCreated:
		return Errorf(Unavailable, "sandbox %s: it is being started", name).WithHint("try again")
	default:
		return Errorf(Unavailable, "sandbox %s: it is %s", name, sb.State).WithHint("carboy inspect %s", name)
	}
}

// unreachable says why a port could not be dialled.
func (m *Manager) unreachable(
	ctx context.Context, e *entry, sb *Sandbox, b Backend, port int, cause error,
) error {
	name := sb.Spec.Name
	if b.Alive(ctx, sb.ID) {
		if KindOf(cause) != Internal {
			return cause
		}
		silent := Errorf(Unavailable, "sandbox %s: nothing answers on port %d", name, port)
		silent.Err = cause
		return silent
	}
	wait, cancel := context.WithTimeout(ctx, deathTimeout)
	defer cancel()
	reason, err := b.Wait(wait, sb.ID)
	if err != nil {
		hung := Errorf(Unavailable, "sandbox %s: its guest does not answer", name).WithHint("carboy stop %s", name)
		hung.Err = cause
		return hung
	}
	if err := m.lives.ended(ctx, e, sb.Starts, reason); err != nil {
		return err
	}
	if now := m.registry.record(e); now == nil {
		return Errorf(NotFound, "sandbox %s: not found", name).WithHint("carboy ls")
	} else if _, again := restartText[now.Ended]; now.State == StateStopped && !again {
		return mustRun(now) // its owner stopped it meanwhile, or its time is over
	}
	return Errorf(Unavailable, "sandbox %s: it ended: %s", name, reason).WithHint("try again: that starts it again")
}

// EnsureRunning returns a sandbox that runs. One that ended by itself is
// started again, and notice says so and what was lost, for the user to read;
// one that was stopped on purpose is a Conflict.
func (m *Manager) EnsureRunning(ctx context.Context, c Caller, ref string) (sb *Sandbox, notice string, err error) {
	if sb, err := m.Get(ctx, c, ref); err != nil || sb.State == StateRunning {
		return sb, "", err
	}
	sb, err = m.change(ctx, c, ref, func(ctx context.Context, e *entry) error {
		sb := m.registry.record(e)
		if sb.State == StateRunning {
			return nil
		}
		text, ok := restartText[sb.Ended]
		if !ok {
			return mustRun(sb)
		}
		if err := m.admitStart(c, e); err != nil {
			return err
		}
		if err := m.lives.restart(ctx, e); err != nil {
			return err
		}
		notice = "sandbox " + sb.Spec.Name + " " + text + " and was started again" + lossText(sb.Lost)
		return nil
	})
	return sb, notice, err
}

// restartText names the ends after which a sandbox is started again unasked.
var restartText = map[EndReason]string{
	EndOutOfMemory: "ran out of memory",
	EndCrashed:     "crashed",
	EndRebooted:    "was ended by a reboot of the host",
}

func lossText(lost []string) string {
	switch n := len(lost); n {
	case 0:
		return ""
	case 1:
		return ": its " + lost[0] + " are lost"
	default:
		return ": its " + strings.Join(lost[:n-1], ", ") + " and " + lost[n-1] + " are lost"
	}
}

// Changes writes the changes of a sandbox's workspace to w, as
// Backend.Changes does. It works on running and on stopped ones.
func (m *Manager) Changes(ctx context.Context, c Caller, ref string, opts ChangesOptions, w io.Writer) error {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	_, sb, err := m.registry.find(c, ref)
	if err != nil {
		return err
	}
	if mode := sb.Spec.Workspace.Mode; mode != WorkspaceCOW {
		return Errorf(Conflict, "sandbox %s: its workspace is %s, no copy of a directory, so there are no changes", refText(sb.Spec.Name), mode)
	}
	if sb.State != StateStopped {
		if err := mustRun(sb); err != nil {
			return err
		}
	}
	b, err := m.lives.backends.of(sb)
	if err != nil {
		return err
	}
	if opts.Whole && b.Capabilities().Whole != nil {
		err = m.wholeChanges(ctx, c, ref, opts, w)
	} else {
		err = b.Changes(ctx, sb, opts, w)
	}
	if err != nil {
		return failure(err, sb.Spec.Name, "read its changes")
	}
	return nil
}

// wholeRounds bounds how often a view is made whole in which directories are renamed all the time.
const wholeRounds = 4

// wholeChanges is Changes for an apply: the view is made whole, and then read.
func (m *Manager) wholeChanges(ctx context.Context, c Caller, ref string, opts ChangesOptions, w io.Writer) error {
	for range wholeRounds {
		b, sb, at, err := m.makeWhole(ctx, c, ref)
		switch {
		case err == nil:
			defer at.Release()
			opts.Shape = at.Shape
			err := b.Changes(ctx, sb, opts, w)
			if err == nil && opts.Held != nil && at.Over != nil {
				opts.Held(ctx, at.Over)
			}
			return err
		case !IsLoose(err):
			return err
		}
	}
	return ErrLoose
}

// makeWhole makes the view of a sandbox whole, in its turn: nothing starts or stops it meanwhile.
func (m *Manager) makeWhole(ctx context.Context, c Caller, ref string) (b Backend, sb *Sandbox, at Moment, err error) {
	e, unlock, err := m.lives.lock(ctx, c, ref)
	if err != nil {
		return nil, nil, at, err
	}
	defer unlock()
	sb = m.registry.record(e).Clone()
	if sb.State != StateStopped {
		if err := mustRun(sb); err != nil {
			return nil, nil, at, err
		}
	}
	if b, err = m.lives.backends.of(sb); err != nil {
		return nil, nil, at, err
	}
	at, err = b.Capabilities().Whole.MakeWhole(ctx, sb)
	return b, sb, at, err
}

// Hold takes a lease. While there is one, an ephemeral sandbox is not
// finished, unless by Finish; OrphanGrace after the last it is. For other
// sandboxes it only counts in Idle. Calling release again does nothing.
func (m *Manager) Hold(_ context.Context, c Caller, ref string) (release func(), err error) {
	if err := m.ops.ready(c); err != nil {
		return nil, err
	}
	return m.registry.hold(c, ref)
}

// Record adds an event to a sandbox's log. A zero time means now; what
// exceeds the log's bounds is cut.
func (m *Manager) Record(ctx context.Context, c Caller, ref string, ev Event) error {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return err
	}
	defer done()
	_, sb, err := m.registry.find(c, ref)
	if err != nil {
		return err
	}
	if ev.Time.IsZero() {
		ev.Time = m.now()
	}
	if err := m.events.Append(ctx, sb.ID, ev.bounded()); err != nil {
		return failure(err, sb.Spec.Name, "write its log")
	}
	return nil
}

// Events returns the newest MaxEvents events of a sandbox, oldest first.
func (m *Manager) Events(ctx context.Context, c Caller, ref string) ([]Event, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	_, sb, err := m.registry.find(c, ref)
	if err != nil {
		return nil, err
	}
	evs, err := m.events.Events(ctx, sb.ID)
	if err != nil {
		return nil, failure(err, sb.Spec.Name, "read its log")
	}
	return evs, nil
}

// Metered is a sandbox to be measured, and what it may use.
type Metered struct {
	ID      string
	Running bool
	Starts  int // how often it came to run: what is counted begins anew with each
	CPUs    float64
	Memory  int64 // bytes that it may use
}

// Metered lists everyone's sandboxes, to be measured; nil before the records are
// read.
func (m *Manager) Metered() []Metered {
	if !m.ops.opened() {
		return nil
	}
	records := m.registry.records()
	out := make([]Metered, 0, len(records))
	for _, sb := range records {
		l := sb.Spec.Limits
		out = append(out, Metered{sb.ID, sb.State == StateRunning, sb.Starts, l.CPUs, l.Memory})
	}
	return out
}

// Measure returns what the instance of a running sandbox uses. It fails with
// Unsupported where its wall can't tell.
func (m *Manager) Measure(ctx context.Context, id string) (Usage, error) {
	sb, measurer, err := m.measurer(Caller{Admin: true}, id)
	if err != nil {
		return Usage{}, err
	}
	return measurer.Measure(ctx, sb.ID)
}

// measurer is what measures the instance of a running sandbox.
func (m *Manager) measurer(c Caller, ref string) (*Sandbox, Measurer, error) {
	_, sb, b, err := m.running(c, ref)
	if err != nil {
		return nil, nil, err
	}
	if b.Capabilities().Usage == nil {
		return nil, nil, Errorf(Unsupported, "sandbox %s: its wall does not tell what it uses", sb.Spec.Name)
	}
	return sb, b.Capabilities().Usage, nil
}

// Processes lists what runs in a running sandbox, as that says itself.
func (m *Manager) Processes(ctx context.Context, c Caller, ref string) (guest.Processes, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return guest.Processes{}, err
	}
	defer done()
	sb, measurer, err := m.measurer(c, ref)
	if err != nil {
		return guest.Processes{}, err
	}
	list, err := measurer.Processes(ctx, sb.ID)
	if err != nil {
		return list, failure(err, sb.Spec.Name, "list its processes")
	}
	return list, nil
}

// Usage returns what a running sandbox uses, with its record.
func (m *Manager) Usage(ctx context.Context, c Caller, ref string) (*Sandbox, Usage, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, Usage{}, err
	}
	defer done()
	sb, measurer, err := m.measurer(c, ref)
	if err != nil {
		return nil, Usage{}, err
	}
	u, err := measurer.Measure(ctx, sb.ID)
	if err != nil {
		return nil, u, failure(err, sb.Spec.Name, "measure it")
	}
	return sb.Clone(), u, nil
}

// Held returns how many bytes of the host's disk a sandbox takes, running or not.
func (m *Manager) Held(ctx context.Context, c Caller, ref string) (int64, error) {
	sb, err := m.Get(ctx, c, ref)
	if err != nil {
		return 0, err
	}
	b, err := m.lives.backends.of(sb)
	if err != nil || b.Capabilities().Usage == nil {
		return 0, err
	}
	n, err := b.Capabilities().Usage.Held(ctx, sb.ID)
	if g, ok := m.gates.gate.(Holder); ok && err == nil {
		var more int64
		more, err = g.Held(ctx, sb.ID)
		n += more
	}
	if err != nil {
		return 0, failure(err, sb.Spec.Name, "measure what it holds")
	}
	return n, nil
}
