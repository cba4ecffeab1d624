package langbot

import (
	"container/heap"
	"context"
	"time"

	"github.com/carboy-sandbox/carboy/api/langbot"
)

// grant installs one, and ends what it does not permit.
func grant(ctx context.Context, c call) (any, error) {
	g, expires, err := parseGrant(c.data)
	if err != nil {
		return nil, err
	}
	if c.instance == "" || g.InstanceUUID != c.instance {
		return nil, denied("Sandbox admission grant does not match the trusted instance")
	}
	a := c.h.admit
	p, err := a.enforced()
	if err != nil {
		return nil, err
	}
	now := c.h.clock.Now()
	switch {
	case !now.Before(expires):
		return nil, admissionError("Cannot install an expired sandbox admission grant")
	case expires.After(now.Add(time.Duration(p.MaxGrantSec) * time.Second)):
		return nil, admissionError("Sandbox admission grant lifetime exceeds the configured maximum of %d s", p.MaxGrantSec)
	case g.MaxSessions > p.MaxSessions:
		return nil, admissionError("Sandbox admission grant exceeds the session cap")
	case g.MaxProcesses > p.MaxProcesses:
		return nil, admissionError("Sandbox admission grant exceeds the managed-process cap")
	}
	installed, drop, err := a.install(ctx, g, expires)
	if err != nil {
		return nil, err
	}
	about := &langbot.Context{InstanceUUID: g.InstanceUUID, WorkspaceUUID: g.WorkspaceUUID, PlacementGeneration: g.ExecutionGeneration}
	keep := prefix(about) + admittedID
	err = c.h.o.Sessions.DropAll(ctx, ownerOf(g.InstanceUUID, g.WorkspaceUUID), func(id string) bool { return drop || id != keep })
	if err != nil {
		return nil, err
	}
	c.h.fence.swept(about)
	return map[string]any{
		"installed": true, "workspace_uuid": installed.WorkspaceUUID,
		"execution_generation": installed.ExecutionGeneration, "entitlement_revision": installed.EntitlementRevision,
		"max_sessions": installed.MaxSessions, "max_managed_processes": installed.MaxProcesses,
		"expires_at": installed.expires.Format("2006-01-02T15:04:05.999999-07:00"),
	}, nil
}

// install keeps a grant, unless it is behind what is known, or shorter than the
// same one that is there already: two replicas of a host may renew it at once.
// Its generation is the newest from then on. drop says that its workspace's
// sessions have to end.
func (a *admission) install(ctx context.Context, g langbot.Grant, expires time.Time) (in granted, drop bool, err error) {
	key := workspace{g.InstanceUUID, g.WorkspaceUUID}
	err = a.h.fence.advance(ctx, key, func(m *mark) error {
		switch {
		case g.EntitlementRevision <= m.Revoked:
			return admissionError("Sandbox admission grant revision was revoked")
		case g.EntitlementRevision < m.Revision:
			return admissionError("Sandbox admission grant revision is stale")
		case g.ExecutionGeneration < m.Generation:
			return admissionError("Sandbox admission execution generation is stale")
		case g.EntitlementRevision == m.Revision && m.Granted && (g.MaxSessions != m.Sessions || g.MaxProcesses != m.Processes):
			return admissionError("Sandbox admission limits changed without a new entitlement revision")
		}
		m.Revision, m.Granted, m.Sessions, m.Processes = g.EntitlementRevision, true, g.MaxSessions, g.MaxProcesses
		m.Generation = g.ExecutionGeneration
		return nil
	}, func() { in, drop = a.put(key, g, expires) })
	return in, drop, err
}

// put has a grant hold from now on, which its workspace's marks allow.
func (a *admission) put(key workspace, g langbot.Grant, expires time.Time) (in granted, drop bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := a.grants[key]
	if is != nil && is.EntitlementRevision == g.EntitlementRevision && is.ExecutionGeneration == g.ExecutionGeneration && expires.Before(is.expires) {
		return *is, false
	}
	drop = is != nil && is.ExecutionGeneration != g.ExecutionGeneration || g.MaxSessions == 0
	a.forgetLocked(key)
	now := &granted{Grant: g, key: key, expires: expires, ends: a.watch.Passed() + expires.Sub(a.h.clock.Now().Round(0))}
	a.grants[key] = now
	heap.Push(&a.ends, now)
	a.nudge()
	return *now, drop
}

// revoke ends a workspace's grant, keeps those up to its revision out for good,
// and ends the sessions.
func revoke(ctx context.Context, c call) (any, error) {
	r, err := parseRevocation(c.data)
	if err != nil {
		return nil, err
	}
	if c.instance == "" || r.InstanceUUID != c.instance {
		return nil, denied("Sandbox admission revocation does not match the trusted instance")
	}
	a := c.h.admit
	if !a.required() {
		return nil, admissionError("Sandbox admission enforcement is not enabled")
	}
	key := workspace{r.InstanceUUID, r.WorkspaceUUID}
	err = c.h.fence.advance(ctx, key, func(m *mark) error {
		if r.EntitlementRevision < max(m.Revision, m.Revoked) {
			return admissionError("Sandbox admission revocation is stale")
		}
		m.Revision, m.Revoked, m.Granted = r.EntitlementRevision, r.EntitlementRevision, false
		m.Sessions, m.Processes = 0, 0
		return nil
	}, func() { a.forget(key) })
	if err != nil {
		return nil, err
	}
	if err := c.h.o.Sessions.DropAll(ctx, ownerOf(r.InstanceUUID, r.WorkspaceUUID), nil); err != nil {
		return nil, err
	}
	return map[string]any{"revoked": true, "workspace_uuid": r.WorkspaceUUID, "entitlement_revision": r.EntitlementRevision}, nil
}

func (a *admission) forget(key workspace) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetLocked(key)
}

func (a *admission) forgetLocked(key workspace) {
	if g := a.grants[key]; g != nil {
		heap.Remove(&a.ends, g.index)
		delete(a.grants, key)
	}
}

// expiries is a heap of grants by their end.
type expiries []*granted

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].ends < e[j].ends }
func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

// Push implements heap.Interface.
func (e *expiries) Push(v any) {
	g := v.(*granted)
	g.index = len(*e)
	*e = append(*e, g)
}

// Pop implements heap.Interface.
func (e *expiries) Pop() any {
	last := len(*e) - 1
	g := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return g
}
