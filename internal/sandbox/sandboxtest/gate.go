package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// The operations of a Gate, as a Hook sees them. The id of a GateCheck and of
// an Entitled is empty.
const (
	GateCheck  Op = "gate-check"
	Entitled   Op = "gate-entitled"
	GateOpen   Op = "gate-open"
	GateVerify Op = "gate-verify"
	GateAdopt  Op = "gate-adopt"
	GateSet    Op = "gate-set"
	GateKeep   Op = "gate-keep"
	GateClose  Op = "gate-close"
	GateRemove Op = "gate-remove"
)

// Gate is a sandbox.Gate in memory. What it holds outlives any Manager, as
// real gates do; Forsake says that the one which watched over them is gone. It
// refuses, and remembers as faults, what the contract of sandbox.Gate forbids.
type Gate struct {
	mu     sync.Mutex
	hooked Hook
	gates  map[string]*gate
	links  []*os.File
	calls  []string
	stored map[string]bool // secrets that every owner has
	faults []string
}

type gate struct {
	busy    Op // what is under way, but for Check, Entitled and Log
	open    bool
	watched bool // by a daemon that lives
	policy  *policy.Policy
	values  sandbox.SecretValues
	records []netlog.Record
}

var _ sandbox.Gate = (*Gate)(nil)

// NewGate returns one without gates. Every owner has the secrets named.
func NewGate(secrets ...string) *Gate {
	g := &Gate{gates: make(map[string]*gate), stored: make(map[string]bool)}
	for _, name := range secrets {
		g.stored[name] = true
	}
	return g
}

// SetHook sets what is called within the operations to come; nil is nothing.
func (g *Gate) SetHook(h Hook) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hooked = h
}

// Forsake says that no daemon watches over any gate.
func (g *Gate) Forsake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.gates {
		x.watched = false
	}
}

// CloseLinks closes the links that a daemon left which died, as the kernel does.
func (g *Gate) CloseLinks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range g.links {
		_ = f.Close() // it may be closed already
	}
	g.links = nil
}

// Plant makes an open gate of which nobody has a record.
func (g *Gate) Plant(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gates[id] = &gate{open: true}
}

// Note adds a record to a sandbox's.
func (g *Gate) Note(id string, r netlog.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.gates[id]; x != nil {
		x.records = append(x.records, r)
	}
}

// Opened lists the IDs of the open gates, in order; those alone that a living
// daemon watches over, if that is asked.
func (g *Gate) Opened(watched bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ids []string
	for id, x := range g.gates {
		if x.open && (x.watched || !watched) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Policy returns what a gate goes by, or nil.
func (g *Gate) Policy(id string) *policy.Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.gates[id]; x != nil {
		return policy.Clone(x.policy)
	}
	return nil
}

// Kept returns the secrets that a gate was given for its sandbox alone.
func (g *Gate) Kept(id string) sandbox.SecretValues {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x := g.gates[id]; x != nil {
		return maps.Clone(x.values)
	}
	return nil
}

// Calls lists the operations so far, but for GateCheck and Entitled: "gate-open
// ID". With a Linked wall its starts and stops are among them.
func (g *Gate) Calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// Faults lists the breaches of the contract so far, links that nobody closed
// among them.
func (g *Gate) Faults() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	faults := slices.Clone(g.faults)
	for _, f := range g.links {
		if f.Close() == nil {
			faults = append(faults, "a link was left open")
		}
	}
	g.links = nil
	return faults
}

// Check implements sandbox.Gate.
func (g *Gate) Check(ctx context.Context, spec sandbox.Spec) (sandbox.Enforcement, error) {
	if err := g.hook(ctx, GateCheck, ""); err != nil {
		return sandbox.Enforcement{}, err
	}
	if spec.Policy == nil || !spec.Networked() {
		return sandbox.Enforcement{}, g.fault("check of a spec without a network: %+v", spec)
	}
	return gateEnforced(), nil
}

func gateEnforced() sandbox.Enforcement {
	return sandbox.Enforcement{Promise: "network", Enforced: true, Mechanism: "a make-believe gate"}
}

// Entitled implements sandbox.Gate.
func (g *Gate) Entitled(ctx context.Context, owner string, names []string) error {
	if err := g.hook(ctx, Entitled, ""); err != nil {
		return err
	}
	for _, name := range names {
		if !g.stored[name] {
			return sandbox.Errorf(sandbox.NotFound, "secret %s: %s has none of that name", name, owner)
		}
	}
	return nil
}

// Open implements sandbox.Gate. One that fails by a Hook leaves something, as
// a real one may.
func (g *Gate) Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (*sandbox.Link, error) {
	x, done := g.enter(GateOpen, sb.ID, true)
	defer done()
	if sb.Spec.Policy == nil || sb.State != sandbox.StateCreated || takes != sandbox.LinkNetNS {
		return nil, g.fault("open of a gate for %+v", sb)
	}
	if err := g.hook(ctx, GateOpen, sb.ID); err != nil {
		return nil, err
	}
	netns, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.open {
		g.faults = append(g.faults, fmt.Sprintf("open of the gate of %s, which is open", sb.ID))
	}
	g.links = append(g.links, netns)
	x.open, x.watched, x.policy = true, true, policy.Clone(sb.Spec.Policy)
	if values != nil { // a later start brings none, and has what the first one brought
		x.values = maps.Clone(values)
	}
	return &sandbox.Link{NetNS: netns, Join: func([]string) error { return nil }, Hostname: "gate.example"}, nil
}

// Verify implements sandbox.Gate: it connects to the instance.
func (g *Gate) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	x, done := g.enter(GateVerify, sb.ID, false)
	defer done()
	if err := g.hook(ctx, GateVerify, sb.ID); err != nil {
		return nil, err
	}
	if !g.is(x, true) {
		return nil, g.fault("verification of %s, which has no gate", sb.ID)
	}
	c, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	return []sandbox.Enforcement{gateEnforced()}, c.Close()
}

// Adopt implements sandbox.Gate.
func (g *Gate) Adopt(ctx context.Context, sb *sandbox.Sandbox, end *os.File) error {
	x, done := g.enter(GateAdopt, sb.ID, true)
	defer done()
	if end == nil || end.Close() != nil {
		return g.fault("adoption of the gate of %s without a namespace", sb.ID)
	}
	if err := g.hook(ctx, GateAdopt, sb.ID); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x.open, x.watched, x.policy = true, true, policy.Clone(sb.Spec.Policy)
	return nil
}

// Keep implements sandbox.Gate.
func (g *Gate) Keep(ctx context.Context, sb *sandbox.Sandbox, values sandbox.SecretValues) error {
	x, done := g.enter(GateKeep, sb.ID, false)
	defer done()
	if err := g.hook(ctx, GateKeep, sb.ID); err != nil {
		return err
	}
	if x == nil || !sb.Spec.Networked() {
		return g.fault("secrets for %s, which has no network", sb.ID)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if x.values == nil {
		x.values = sandbox.SecretValues{}
	}
	maps.Copy(x.values, values)
	return nil
}

// Values implements sandbox.Gate.
func (g *Gate) Values(_ context.Context, sb *sandbox.Sandbox) (sandbox.SecretValues, error) {
	return g.Kept(sb.ID), nil
}

// Set implements sandbox.Gate.
func (g *Gate) Set(ctx context.Context, sb *sandbox.Sandbox) error {
	x, done := g.enter(GateSet, sb.ID, false)
	defer done()
	if err := g.hook(ctx, GateSet, sb.ID); err != nil {
		return err
	}
	if !g.is(x, true) || !x.watched {
		return g.fault("policy for the gate of %s, which is not open or nobody's", sb.ID)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x.policy = policy.Clone(sb.Spec.Policy)
	return nil
}

// Close implements sandbox.Gate.
func (g *Gate) Close(ctx context.Context, id string) error {
	x, done := g.enter(GateClose, id, false)
	defer done()
	if err := g.hook(ctx, GateClose, id); err != nil || x == nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x.open, x.watched = false, false
	return nil
}

// Remove implements sandbox.Gate.
func (g *Gate) Remove(ctx context.Context, id string) error {
	x, done := g.enter(GateRemove, id, false)
	defer done()
	if err := g.hook(ctx, GateRemove, id); err != nil {
		return err
	}
	if g.is(x, true) {
		return g.fault("remove of the gate of %s, which is open", id)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gates, id)
	return nil
}

// Gates implements sandbox.Gate.
func (g *Gate) Gates(context.Context) ([]string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.gates)), nil
}

// Log implements sandbox.Gate. It does not follow.
func (g *Gate) Log(_ context.Context, id string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	g.mu.Lock()
	x := g.gates[id]
	if x == nil {
		g.mu.Unlock()
		return nil
	}
	records := slices.Clone(x.records)
	g.mu.Unlock()
	for _, r := range records {
		if r.Seq > o.After && (!o.Denied || r.Verdict == netlog.Deny) {
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// OfferService implements sandbox.Gate: nobody calls what is offered.
func (g *Gate) OfferService(context.Context, string, string) (net.Conn, error) {
	here, _ := net.Pipe()
	return here, nil
}

// Use implements sandbox.Gate: it counts records.
func (g *Gate) Use(_ context.Context, id string) (sandbox.NetUse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var use sandbox.NetUse
	if one := g.gates[id]; one != nil && len(one.records) > 0 {
		use.Counters = []sandbox.NetCounter{{Protocol: "https", Verdict: netlog.Allow, Count: uint64(len(one.records))}}
	}
	return use, nil
}

func (g *Gate) is(x *gate, open bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return x != nil && x.open == open
}

func (g *Gate) hook(ctx context.Context, op Op, id string) error {
	g.mu.Lock()
	h := g.hooked
	g.mu.Unlock()
	if h == nil {
		return nil
	}
	return h(ctx, op, id)
}

// enter marks op as under way on a gate, which it makes if create is set.
func (g *Gate) enter(op Op, id string, create bool) (*gate, func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, string(op)+" "+id)
	x := g.gates[id]
	if x == nil {
		if !create {
			return nil, func() {}
		}
		x = new(gate)
		g.gates[id] = x
	}
	if x.busy != "" {
		g.faults = append(g.faults, fmt.Sprintf("%s of %s during its %s", op, id, x.busy))
		return x, func() {}
	}
	x.busy = op
	return x, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		x.busy = ""
	}
}

func (g *Gate) fault(format string, args ...any) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, fmt.Sprintf(format, args...))
	return fmt.Errorf(format, args...)
}

func (g *Gate) called(op Op, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, string(op)+" "+id)
}

// Linked is a Fake whose instances can have a network. It wants a link for those
// that are to have one, and for no others.
type Linked struct {
	*Fake
	Gate *Gate
}

// Capabilities implements sandbox.Backend.
func (l Linked) Capabilities() sandbox.Capabilities {
	c := l.Fake.Capabilities()
	c.Link, c.LinkEnd = sandbox.LinkNetNS, l.linkEnd
	return c
}

// Start implements sandbox.Backend.
func (l Linked) Start(ctx context.Context, sb *sandbox.Sandbox) ([]sandbox.Enforcement, error) {
	l.Gate.called(Start, sb.ID)
	if (sb.Link != nil) != sb.Spec.Networked() {
		return nil, l.fault("start of %s, network %s, with the link %+v", sb.ID, sb.Spec.Network, sb.Link)
	}
	if sb.Link != nil {
		if _, err := sb.Link.NetNS.Stat(); err != nil {
			return nil, l.fault("start of %s with a closed link: %v", sb.ID, err)
		}
		if err := sb.Link.Join([]string{"/cgroup.procs"}); err != nil {
			return nil, err
		}
	}
	return l.Fake.Start(ctx, sb)
}

// Stop implements sandbox.Backend.
func (l Linked) Stop(ctx context.Context, id string) ([]string, error) {
	l.Gate.called(Stop, id)
	return l.Fake.Stop(ctx, id)
}

// Remove implements sandbox.Backend.
func (l Linked) Remove(ctx context.Context, id string) error {
	l.Gate.called(Remove, id)
	return l.Fake.Remove(ctx, id)
}

func (l Linked) linkEnd(id string) (*os.File, error) {
	if !slices.Contains(l.Running(), id) {
		return nil, errors.New("no instance " + id + " runs")
	}
	return os.Open(os.DevNull)
}

// Agrees reports how the gates differ from what the records promise, after
// everything has come to rest: one that is open and goes by the record for
// each that runs, one that is closed for each that is stopped, and no others.
func (g *Gate) Agrees(records []*sandbox.Sandbox) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	type state struct {
		Open, Watched bool
		Policy        *policy.Policy
	}
	want, got := make(map[string]state), make(map[string]state)
	for _, sb := range records {
		running := sb.State == sandbox.StateRunning
		if sb.Spec.Networked() {
			want[sb.ID] = state{Open: running, Watched: running}
			if running {
				want[sb.ID] = state{Open: true, Watched: true, Policy: sb.Spec.Policy}
			}
		}
	}
	for id, x := range g.gates {
		got[id] = state{Open: x.open, Watched: x.watched}
		if x.open {
			got[id] = state{Open: true, Watched: x.watched, Policy: x.policy}
		}
	}
	return cmp.Diff(want, got)
}
