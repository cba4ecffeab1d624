package sandbox

import (
	"context"
	"errors"
	"io"
	"time"
)

const (
	// endTimeout bounds the end of one sandbox: what was begun is ended even
	// when the caller has gone.
	endTimeout = 2 * time.Minute

	maxOwner     = 256 // bytes
	nameAttempts = 16
)

// detached is a context for what must be done although ctx may have ended.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
}

// Create builds a sandbox and returns once its guest answers. A spec without
// a name gets one. After an error, and where ctx ends first, nothing is left.
func (m *Manager) Create(ctx context.Context, c Caller, spec Spec) (*Sandbox, error) {
	ctx, done, err := m.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	if c.Owner == "" || len(c.Owner) > maxOwner {
		return nil, Errorf(Denied, "create: a sandbox needs an owner")
	}
	spec, err = m.fromSnapshot(c, spec)
	if err != nil {
		return nil, err
	}
	spec = spec.Normalize(m.offer)
	if err := spec.Validate(m.offer); err != nil {
		return nil, err
	}
	quota := m.quotas.Quota(c.Owner)
	spec.Limits = quota.clamp(spec.Limits)
	if err := quota.allows(spec); err != nil {
		return nil, err
	}
	b, why, err := m.choose(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := m.checkGate(ctx, c, spec); err != nil {
		return nil, err
	}
	defer m.starting()()
	var e *entry
	var sb *Sandbox
	err = m.pinImage(ctx, spec.Image, func() error {
		return m.pinVolumes(ctx, c.Owner, spec, func() (err error) {
			e, sb, err = m.reserve(c, spec, b.Name(), why)
			return err
		})
	})
	if err != nil {
		return nil, failure(err, spec.Name, "take its image and volumes")
	}
	defer m.give(e)
	sb, err = m.build(ctx, e, b, sb)
	m.mu.Lock()
	if err != nil {
		m.counts.Failures++
	} else {
		m.counts.Creates++
	}
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if key, ok := m.pool.kindFor(sb.Backend, sb.Spec, sb.Owner); ok {
		m.mu.Lock()
		m.pool.saw(key, sb.Spec)
		m.mu.Unlock()
	}
	return sb.Clone(), nil
}

// build takes a reserved sandbox to running, or back to nothing, and returns
// its record.
func (m *Manager) build(ctx context.Context, e *entry, b Backend, sb *Sandbox) (*Sandbox, error) {
	err := m.raise(ctx, e, b, sb)
	if errors.Is(err, errClaim) {
		var next *entry
		if next, sb, err = m.renew(ctx, e); err == nil {
			defer m.give(next)
			return m.build(ctx, next, b, sb)
		}
	}
	if err == nil {
		return m.record(e), nil
	}
	undo, cancel := detached(ctx)
	defer cancel()
	if uerr := m.remove(undo, e); uerr != nil {
		m.log.Error("undo a failed create", "id", e.id, "cause", err, "error", uerr)
		m.retryLater(e)
	}
	return nil, err
}

// raise writes a reserved sandbox down and takes it to running.
func (m *Manager) raise(ctx context.Context, e *entry, b Backend, sb *Sandbox) error {
	e.values, sb.Spec.SecretValues = sb.Spec.SecretValues, nil
	if err := m.save(ctx, e, sb); err != nil {
		// Whether the store has it is not known, so it is deleted there.
		m.mu.Lock()
		e.sb = sb
		m.mu.Unlock()
		return err
	}
	m.note(ctx, sb, EventCreated, "created behind %s", behindText(sb))
	return m.boot(ctx, e, b)
}

// behindText names sb's wall, with the reason where it is not just what was
// asked for.
func behindText(sb *Sandbox) string {
	if sb.Why == whyAsked {
		return sb.Backend
	}
	return sb.Backend + ": " + sb.Why
}

// reserve takes an ID and a name, and with them the turn of a new entry. Where
// there is a warm instance that will do, it takes that, and its ID.
func (m *Manager) reserve(c Caller, spec Spec, backend, why string) (*entry, *Sandbox, error) {
	id, err := m.random(NewID)
	if err != nil {
		return nil, nil, err
	}
	made := Sandbox{Spec: spec}
	if err := m.makeTokens(&made); err != nil {
		return nil, nil, err
	}
	given := spec.Name != ""
	for range nameAttempts {
		if !given {
			if spec.Name, err = m.random(NewName); err != nil {
				return nil, nil, err
			}
		}
		e := &entry{id: id, turn: make(chan struct{}, 1), image: spec.Image, snapshot: spec.Snapshot, volumes: spec.volumes()}
		entered, err := m.enrol(e, c, nameKey{c.Owner, spec.Name}, backend, spec)
		if err != nil {
			return nil, nil, err
		}
		if entered {
			return e, &Sandbox{
				ID: e.id, Owner: c.Owner, Spec: spec, State: StateCreated,
				Backend: backend, Why: why, Token: made.Token, TrafficToken: made.TrafficToken, CreatedAt: m.now(),
			}, nil
		}
		if given {
			return nil, nil, Errorf(Conflict, "sandbox %s: the name is taken", spec.Name).
				WithHint("choose another name, or carboy rm %s", spec.Name)
		}
	}
	return nil, nil, Errorf(Exhausted, "no free name was found").WithHint("choose a name")
}

// enrol enters e under its ID and key, or reports that either is taken. The ID
// becomes that of a warm instance, if there is one: nobody else can take it then.
// From then on its snapshot is in use. It fails where that has gone, or the
// owner may have no more.
func (m *Manager) enrol(e *entry, c Caller, key nameKey, backend string, spec Spec) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usableLocked(c, spec.Snapshot); err != nil {
		return false, err
	}
	if _, taken := m.names[key]; taken || m.takenLocked(e.id) {
		return false, nil
	}
	if err := m.admitLocked(key.owner, true); err != nil {
		return false, err
	}
	if kind, ok := m.pool.kindFor(backend, spec, key.owner); ok {
		if e.warm = m.pool.take(kind); e.warm != nil {
			e.id = e.warm.id
		}
	}
	m.names[key] = e.id
	m.entries[e.id] = e
	return true, nil
}

func (m *Manager) random(read func(io.Reader) (string, error)) (string, error) {
	m.randMu.Lock()
	defer m.randMu.Unlock()
	s, err := read(m.rand)
	if err != nil {
		return "", &Error{Kind: Internal, Msg: "the machine has no randomness", Err: err}
	}
	return s, nil
}

// boot starts the instance of a sandbox in state created and takes it to running.
// After an error the instance may be there still: the caller ends it.
func (m *Manager) boot(ctx context.Context, e *entry, b Backend) error {
	sb := m.record(e).Clone()
	wasWarm := e.warm != nil
	begun := sb.Clone()
	begun.Spec.SecretValues, e.values = e.values, nil
	begun.TrafficToken = "" // no instance needs it
	resuming, asked := sb.Suspended, ctx
	if resuming { // its memory is used up by that: it goes on although nobody waits
		var cancel context.CancelFunc
		ctx, cancel = detached(ctx)
		defer cancel()
	}
	enforced, lost, err := m.start(ctx, e, b, begun)
	if errors.Is(err, errClaim) {
		m.log.Warn("claim a warm instance", "id", sb.ID, "error", err)
		return err
	}
	if err == nil && (!resuming || lost != nil) {
		ctx = asked // there is no memory, and a startup may take longer than what is detached
		err = m.runStartup(ctx, b, sb)
	}
	if err == nil {
		// A caller who left while it started was told of a failure.
		err = context.Cause(ctx)
	}
	if err != nil {
		m.log.Warn("start instance", "id", sb.ID, "error", err)
		return failure(err, sb.Spec.Name, "start")
	}
	sb.State, sb.Enforced = StateRunning, enforced
	sb.Ended, sb.EndedAt, sb.Lost, sb.Suspended = "", time.Time{}, lost, false
	sb.StartedAt = m.now()
	sb.Starts++
	sb.ExpiresAt = expiry(sb.StartedAt, sb.Spec.TTL)
	if err := m.save(ctx, e, sb); err != nil {
		return err
	}
	m.noteStart(ctx, sb, wasWarm, resuming)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watchLocked(e)
	return nil
}

// noteStart says how sb came to run.
func (m *Manager) noteStart(ctx context.Context, sb *Sandbox, wasWarm, resuming bool) {
	switch {
	case wasWarm:
		m.note(ctx, sb, EventStarted, "started, in an instance that was kept warm")
	case sb.Starts == 1:
		m.note(ctx, sb, EventStarted, "started")
	case resuming && sb.Lost == nil:
		m.note(ctx, sb, EventStarted, "went on from its memory, started %d times in all", sb.Starts)
	case resuming:
		m.note(ctx, sb, EventError, "its memory could not be used%s; started again, %d times in all", lossText(sb.Lost), sb.Starts)
	default:
		m.note(ctx, sb, EventStarted, "started again, %d times in all", sb.Starts)
	}
}

func expiry(from time.Time, ttl time.Duration) time.Time {
	if ttl == 0 {
		return time.Time{}
	}
	return from.Add(ttl)
}

// restart takes a stopped sandbox to running, or back to stopped.
func (m *Manager) restart(ctx context.Context, e *entry) error {
	sb := m.record(e).Clone()
	b, err := m.backend(sb)
	if err != nil {
		return err
	}
	awake, err := m.rouse(e)
	if err != nil {
		return err
	}
	defer awake()
	defer m.starting()()
	sb.State = StateCreated
	if err := m.save(ctx, e, sb); err != nil {
		return err
	}
	err = m.boot(ctx, e, b)
	if err == nil {
		return nil
	}
	m.note(ctx, sb, EventError, "could not be started: %s", userText(err))
	undo, cancel := detached(ctx)
	defer cancel()
	if uerr := m.settle(undo, e); uerr != nil {
		m.log.Error("undo a failed start", "id", e.id, "cause", err, "error", uerr)
		m.retryLater(e)
	}
	return err
}

// userText is what of err may be shown.
func userText(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Msg
	}
	return "internal error"
}
