package sandbox_test

import (
	"context"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// gateWorld is a world whose instances can have a network. Everyone's secrets are
// STORED and OTHER.
type gateWorld struct {
	*world
	gate *sandboxtest.Gate
	wall sandboxtest.Linked
}

func newGateWorld() *gateWorld {
	w := &gateWorld{world: newWorld(), gate: sandboxtest.NewGate("STORED", "OTHER")}
	w.wall = sandboxtest.Linked{Fake: w.fake, Gate: w.gate}
	w.fake.SetServer(hangUp)
	return w
}

// hangUp is a guest that can be connected to.
func hangUp(_ string, _ int, c net.Conn) { _ = c.Close() }

func (w *gateWorld) boot(t fataler) *daemon {
	t.Helper()
	w.gate.Forsake()
	return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.wall}, Gate: w.gate})
}

// check is world's, and wants the gates to agree with the records.
func (w *gateWorld) check(t fataler) {
	t.Helper()
	w.world.check(t)
	records, err := w.store.List(context.Background())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	if d := w.gate.Agrees(records); d != "" {
		t.Errorf("gates, by the records and in truth (-records +truth):\n%s", d)
	}
	if faults := w.gate.Faults(); len(faults) > 0 {
		t.Errorf("the gate was misused: %q", faults)
	}
}

// inGateBubble runs a test with a world and its daemon in a bubble of fake
// time.
func inGateBubble(t *testing.T, test func(t *testing.T, w *gateWorld, d *daemon)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld()
		d := w.boot(t)
		test(t, w, d)
		d.shutdown()
		w.check(t)
	})
}

// allow is a policy for one host.
func allow(host string) *policy.Policy {
	return &policy.Policy{Rules: []policy.Rule{{Hosts: []string{host}}}}
}

// networked is the spec of a sandbox that may reach one host.
func networked(name string) sandbox.Spec {
	return sandbox.Spec{Name: name, Policy: allow("a.example")}
}

// mortalGate is a gate as a mortal process sees it.
type mortalGate struct {
	*sandboxtest.Gate
	*mortality
}

func (g mortalGate) Open(ctx context.Context, sb *sandbox.Sandbox, takes sandbox.LinkForm, values sandbox.SecretValues) (*sandbox.Link, error) {
	g.step()
	l, err := g.Gate.Open(ctx, sb, takes, values)
	if g.dead.Load() || g.left.Load() == 1 {
		_ = l.Close() // as the end of a process does
	}
	g.step()
	return l, err
}

func (g mortalGate) Verify(ctx context.Context, sb *sandbox.Sandbox, dial func(context.Context) (net.Conn, error)) ([]sandbox.Enforcement, error) {
	g.step()
	e, err := g.Gate.Verify(ctx, sb, dial)
	g.step()
	return e, err
}

func (g mortalGate) Adopt(ctx context.Context, sb *sandbox.Sandbox, netns *os.File) error {
	g.step()
	err := g.Gate.Adopt(ctx, sb, netns)
	g.step()
	return err
}

func (g mortalGate) Set(ctx context.Context, sb *sandbox.Sandbox) error {
	g.step()
	err := g.Gate.Set(ctx, sb)
	g.step()
	return err
}

func (g mortalGate) Close(ctx context.Context, id string) error {
	g.step()
	err := g.Gate.Close(ctx, id)
	g.step()
	return err
}

func (g mortalGate) Remove(ctx context.Context, id string) error {
	g.step()
	err := g.Gate.Remove(ctx, id)
	g.step()
	return err
}

func (g mortalGate) Log(ctx context.Context, id string, o sandbox.NetLogOptions, yield func(netlog.Record) error) error {
	g.step()
	return g.Gate.Log(ctx, id, o, yield)
}

// steps are the operations of walls and gates within which a process may die.
var steps = []sandboxtest.Op{
	sandboxtest.Start, sandboxtest.Stop, sandboxtest.Remove,
	sandboxtest.GateOpen, sandboxtest.GateVerify, sandboxtest.GateAdopt, sandboxtest.GateSet,
	sandboxtest.GateClose, sandboxtest.GateRemove,
}

// bootMortally boots a daemon that dies as m says, and whose operations fail
// as broken says.
func (w *gateWorld) bootMortally(t fataler, m *mortality, broken *faults) *daemon {
	t.Helper()
	hook := func(_ context.Context, op sandboxtest.Op, _ string) error {
		if slices.Contains(steps, op) {
			m.step()
			if broken.take(op) {
				return errBoom
			}
		}
		return nil
	}
	w.gate.Forsake()
	w.fake.SetHook(hook)
	w.gate.SetHook(hook)
	return w.bootIn(m.life, t, sandbox.Options{
		Store:    mortalStore{&w.store, m},
		Backends: []sandbox.Backend{mortalBackend{w.wall, m}},
		Gate:     mortalGate{w.gate, m},
	})
}

// bury ends what is left of a dead daemon in memory.
func (w *gateWorld) bury(d *daemon, m *mortality) {
	w.world.bury(d, m)
	w.gate.SetHook(nil)
	w.gate.CloseLinks()
}
