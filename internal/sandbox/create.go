package sandbox

import (
	"context"
	"errors"
	"maps"
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
// a name gets one; values may be nil. After an error, and where ctx ends first,
// nothing is left.
func (m *Manager) Create(ctx context.Context, c Caller, spec Spec, values SecretValues) (*Sandbox, error) {
	ctx, done, err := m.ops.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer done()
	if c.Owner == "" || len(c.Owner) > maxOwner {
		return nil, Errorf(Denied, "create: a sandbox needs an owner")
	}
	spec, b, why, err := m.promise(ctx, c, spec, values)
	if err == nil {
		err = m.room(c.Owner, "create a sandbox", createRoom)
	}
	if err != nil {
		return nil, undone(ctx, err)
	}
	claim, err := m.lives.ports.Claim(ctx, c.Owner, spec.Publish)
	if err != nil {
		return nil, undone(ctx, failure(err, spec.Name, "open its ports"))
	}
	defer claim.Release()
	spec.Publish = claim.Ports()
	defer m.pool.starting()()
	var e *entry
	var sb *Sandbox
	err = m.images.pin(ctx, spec.Image, func() error {
		return m.volumes.pin(ctx, c.Owner, spec, func() (err error) {
			e, sb, err = m.lives.reserve(c, spec, b.Name(), why)
			return err
		})
	})
	if err != nil {
		return nil, undone(ctx, failure(err, spec.Name, "take its image and volumes"))
	}
	defer m.registry.release(e) // the lease of who creates it: the grace begins when it is there
	defer m.registry.give(e)
	e.values = maps.Clone(values)
	if sb, err = m.lives.build(ctx, e, b, sb); err != nil {
		m.failures.Add(1)
		return nil, err
	}
	claim.Serve(sb.ID)
	for _, p := range sb.Spec.Publish {
		m.note(ctx, sb, eventPorts, "port %d is open at 127.0.0.1:%d", p.Port, p.HostPort)
	}
	m.creates.Add(1)
	m.pool.saw(sb.Backend, sb.Spec, sb.Owner)
	return sb.Clone(), nil
}

// promise returns spec with nothing left open, the wall that keeps it and in
// words why that one, or says why it can't be kept for c.
func (m *Manager) promise(ctx context.Context, c Caller, spec Spec, values SecretValues) (_ Spec, b Backend, why string, err error) {
	if spec, err = m.snapshots.imageFor(c, spec); err != nil {
		return Spec{}, nil, "", err
	}
	spec = spec.Normalize(m.offer)
	if err := m.admitWalls(c, spec); err != nil {
		return Spec{}, nil, "", err
	}
	if err := spec.Validate(m.offer); err != nil {
		return Spec{}, nil, "", err
	}
	if err := values.check(spec.Secrets); err != nil {
		return Spec{}, nil, "", err
	}
	quota := m.quotas.Quota(c.Owner)
	spec.Limits = quota.clamp(spec.Limits)
	if err := quota.allows(spec); err != nil {
		return Spec{}, nil, "", err
	}
	if b, why, err = m.choose(ctx, spec); err == nil {
		err = m.gates.check(ctx, c, spec, values)
	}
	return spec, b, why, err
}

// Check reports why a sandbox of that spec could not be created, as far as that
// can be told without building anything; nil where nothing is known to be in
// the way. Quotas, and whether its name is free, are not looked at.
func (m *Manager) Check(ctx context.Context, spec Spec) error {
	_, _, err := m.fit(ctx, spec)
	return err
}

// fit returns spec with nothing left open, and the wall that keeps it.
func (m *Manager) fit(ctx context.Context, spec Spec) (Spec, Backend, error) {
	spec = spec.Normalize(m.offer)
	if err := spec.Validate(m.offer); err != nil {
		return Spec{}, nil, err
	}
	b, _, err := m.choose(ctx, spec)
	return spec, b, err
}

// build takes a reserved sandbox to running, or back to nothing, and returns
// its record.
func (l *lives) build(ctx context.Context, e *entry, b Backend, sb *Sandbox) (*Sandbox, error) {
	err := l.raise(ctx, e, b, sb)
	if errors.Is(err, errClaim) {
		var next *entry
		if next, sb, err = l.renew(ctx, e); err == nil {
			defer l.registry.give(next)
			return l.build(ctx, next, b, sb)
		}
	}
	if err == nil {
		return l.registry.record(e), nil
	}
	undo, cancel := detached(ctx)
	defer cancel()
	if uerr := l.remove(undo, e); uerr != nil {
		l.log.Error("undo a failed create", "id", e.id, "cause", err, "error", uerr)
		l.registry.retryLater(e)
		return nil, err
	}
	return nil, undone(ctx, err)
}

// raise writes a reserved sandbox down and takes it to running.
func (l *lives) raise(ctx context.Context, e *entry, b Backend, sb *Sandbox) error {
	if err := l.registry.assignSlots(e, &sb.Spec); err != nil {
		return err
	}
	if err := l.save(ctx, e, sb); err != nil {
		l.registry.suppose(e, sb) // so that it is deleted there
		return err
	}
	l.note(ctx, sb, eventCreated, "created behind %s", behindText(sb))
	return l.boot(ctx, e, b)
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
// the pool has a warm instance that will do, it takes that, and its ID.
func (l *lives) reserve(c Caller, spec Spec, backend, why string) (*entry, *Sandbox, error) {
	id, err := l.random(NewID)
	if err != nil {
		return nil, nil, err
	}
	kind, pooled := l.pool.kindFor(backend, spec, c.Owner)
	made := Sandbox{Spec: spec}
	if err := l.makeTokens(&made); err != nil {
		return nil, nil, err
	}
	given := spec.Name != ""
	for range nameAttempts {
		if !given {
			if spec.Name, err = l.random(NewName); err != nil {
				return nil, nil, err
			}
		}
		e := newEntry(id, spec)
		e.holds = 1 // see Create
		entered, err := l.registry.enrol(e, c, spec.Name, kind, pooled)
		if err != nil {
			return nil, nil, err
		}
		if entered {
			return e, &Sandbox{
				ID: e.id, Owner: c.Owner, Spec: spec, State: StateCreated,
				Backend: backend, Why: why, Token: made.Token, TrafficToken: made.TrafficToken, CreatedAt: l.now(),
			}, nil
		}
		if given {
			return nil, nil, Errorf(Conflict, "sandbox %s: the name is taken", spec.Name).
				WithHint("choose another name, or carboy rm %s", spec.Name)
		}
	}
	return nil, nil, Errorf(Exhausted, "no free name was found").WithHint("choose a name")
}

// makeTokens gives sb the tokens that let requests in.
func (l *lives) makeTokens(sb *Sandbox) (err error) {
	if sb.Token, err = l.random(newToken); err != nil {
		return err
	}
	sb.TrafficToken = ""
	if sb.Spec.Traffic.Restricted {
		sb.TrafficToken, err = l.random(newToken)
	}
	return err
}
