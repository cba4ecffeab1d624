package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// calls has f's operations on instances and gates, without their ID.
func (w *gateWorld) calls(f func()) []string {
	before := len(w.gate.Calls())
	f()
	var ops []string
	for _, c := range w.gate.Calls()[before:] {
		op, _, _ := strings.Cut(c, " ")
		ops = append(ops, op)
	}
	return ops
}

func wantCalls(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestGateOrder: a gate is there before its instance is, and is closed before it,
// for while it is watched over it would be started again.
func TestGateOrder(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		up, down := []string{"gate-open", "start", "gate-verify"}, []string{"gate-close", "stop"}
		var sb *sandbox.Sandbox
		wantCalls(t, "create", w.calls(func() { sb = create(t, d, networked("web")) }), up...)
		wantCalls(t, "stop", w.calls(func() { d.Stop(t.Context(), ann, "web") }), down...)
		wantCalls(t, "stop again", w.calls(func() { d.Stop(t.Context(), ann, "web") }))
		wantCalls(t, "start", w.calls(func() { d.Start(t.Context(), ann, "web") }), up...)
		wantCalls(t, "death", w.calls(func() { w.fake.Die(sb.ID, sandbox.EndCrashed); synctest.Wait() }), down...)
		wantState(t, d, "web", sandbox.StateStopped, sandbox.EndCrashed)
		wantCalls(t, "ensure", w.calls(func() { d.EnsureRunning(t.Context(), ann, "web") }), up...)
		wantCalls(t, "remove", w.calls(func() { d.Remove(t.Context(), ann, "web", true) }), "gate-close", "stop", "gate-remove", "remove")
		wantCalls(t, "without a network", w.calls(func() {
			create(t, d, sandbox.Spec{Name: "off"})
			d.Remove(t.Context(), ann, "off", true)
		}), "start", "stop", "remove")
	})
}

// TestGateIsReported: a sandbox's record says how its network is kept.
func TestGateIsReported(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		sb := create(t, d, networked("web"))
		if !slices.ContainsFunc(sb.Enforced, func(e sandbox.Enforcement) bool {
			return e.Promise == "network" && e.Enforced && e.Mechanism == "a make-believe gate"
		}) {
			t.Errorf("enforced: %+v", sb.Enforced)
		}
		if sb.Link != nil {
			t.Error("the link became a part of the record")
		}
		if got := w.gate.Policy(sb.ID); !cmp.Equal(got, allow("a.example")) {
			t.Errorf("its gate goes by %+v", got)
		}
	})
}

// TestGateFailures: whatever fails on the way up, nothing is left of a create,
// and a start leaves the sandbox stopped as before.
func TestGateFailures(t *testing.T) {
	unsupported := sandbox.Errorf(sandbox.Unsupported, "no TAP here").WithHint("load the module")
	for _, op := range []sandboxtest.Op{
		sandboxtest.GateCheck, sandboxtest.Entitled, sandboxtest.GateOpen, sandboxtest.Start, sandboxtest.GateVerify,
	} {
		for _, failure := range []error{errBoom, unsupported, context.DeadlineExceeded} {
			t.Run(fmt.Sprintf("%s-%v", op, sandbox.KindOf(failure)), func(t *testing.T) {
				inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
					create(t, d, networked("old"))
					d.Stop(t.Context(), ann, "old")
					fails := func(_ context.Context, o sandboxtest.Op, _ string) error {
						if o == op {
							return failure
						}
						return nil
					}
					w.gate.SetHook(fails)
					w.fake.SetHook(fails)
					_, err := d.Create(t.Context(), ann, networked("new"), nil)
					if err == nil || errors.Is(err, errBoom) && strings.Contains(err.Error(), "boom") {
						t.Errorf("Create = %v", err)
					}
					if failure == unsupported { // the very same
						wantKind(t, "Create", err, sandbox.Unsupported)
					}
					wantGone(t, d, "new")
					w.check(t)
					if op == sandboxtest.GateCheck || op == sandboxtest.Entitled {
						return // asked of a spec alone
					}
					_, err = d.Start(t.Context(), ann, "old")
					if err == nil {
						t.Error("Start went through")
					}
					wantState(t, d, "old", sandbox.StateStopped, sandbox.EndStopped)
					w.check(t)
					w.gate.SetHook(nil)
					w.fake.SetHook(nil)
					if _, err := d.Start(t.Context(), ann, "old"); err != nil {
						t.Errorf("Start once it works: %v", err)
					}
				})
			})
		}
	}
}

// TestGateThatCannotBeEnded: its instance ends all the same, and it is tried again.
func TestGateThatCannotBeEnded(t *testing.T) {
	for _, op := range []sandboxtest.Op{sandboxtest.GateClose, sandboxtest.GateRemove} {
		t.Run(string(op), func(t *testing.T) {
			inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
				create(t, d, networked("web"))
				create(t, d, networked("doomed"))
				w.gate.SetHook(failing(op))
				_, err := d.Stop(t.Context(), ann, "web")
				if op == sandboxtest.GateClose {
					wantKind(t, "Stop", err, sandbox.Internal)
					wantState(t, d, "web", sandbox.StateStopping, sandbox.EndStopped)
				}
				wantKind(t, "Remove", d.Remove(t.Context(), ann, "doomed", true), sandbox.Internal)
				wantState(t, d, "doomed", sandbox.StateRemoving, "")
				if running := w.fake.Running(); len(running) != 0 {
					t.Errorf("%d instances run on", len(running))
				}
				w.gate.SetHook(nil)
				pass(time.Minute)
				wantState(t, d, "web", sandbox.StateStopped, sandbox.EndStopped)
				wantGone(t, d, "doomed")
			})
		})
	}
}

func TestSetPolicy(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		spec := sandbox.Spec{Name: "web", Policy: keyed("STORED"), Secrets: []string{"STORED"}}
		id := create(t, d, spec).ID
		create(t, d, sandbox.Spec{Name: "off"})
		public := policy.Policy{Default: policy.DefaultPublic}
		tests := []struct {
			name    string
			caller  sandbox.Caller
			ref     string
			p       policy.Policy
			want    sandbox.Kind
			network string
		}{
			{"other-host", ann, "web", *allow("b.example"), "", "policy"},
			{"public", ann, "web", public, "", "on"},
			{"nothing", ann, "web", policy.Policy{}, "", "policy"}, // its secret has no use then
			{"by-its-id", admin, id, *keyed("STORED"), "", "policy"},
			{"another-secret", ann, "web", *keyed("OTHER"), sandbox.Invalid, "policy"},
			{"mistaken", ann, "web", *allow("a..example"), sandbox.Invalid, "policy"},
			{"unnetworked", ann, "off", *allow("a.example"), sandbox.Conflict, ""},
			{"anothers", bob, "web", policy.Policy{}, sandbox.NotFound, "policy"},
		}
		for _, tt := range tests {
			before, err := d.Policy(t.Context(), ann, "web")
			if err != nil {
				t.Fatal(err)
			}
			sb, err := d.SetPolicy(t.Context(), tt.caller, tt.ref, tt.p)
			wantKind(t, tt.name, err, tt.want)
			want := tt.p
			if err != nil {
				want = before
			} else if sb.Spec.Network != tt.network {
				t.Errorf("%s: network %s, want %s", tt.name, sb.Spec.Network, tt.network)
			}
			got, err := d.Policy(t.Context(), ann, "web")
			if err != nil || !cmp.Equal(got, want) || !cmp.Equal(w.gate.Policy(id), &want) {
				t.Errorf("%s: %v; recorded %+v, the gate goes by %+v, want %+v", tt.name, err, got, w.gate.Policy(id), want)
			}
		}
		if got := w.fake.Starts(id); got != 1 {
			t.Errorf("it was started %d times", got)
		}
		evs, _ := d.Events(t.Context(), ann, "web")
		if n := len(slices.DeleteFunc(evs, func(e sandbox.Event) bool { return e.Type != sandbox.EventPolicy })); n != 4 {
			t.Errorf("%d events of policies, want 4", n)
		}
	})
}

// TestPolicyIsTheRecordsOwn: no caller changes it behind the Manager's back.
func TestPolicyIsTheRecordsOwn(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		spec := networked("web")
		sb := create(t, d, spec)
		spec.Policy.Rules[0].Hosts[0] = "evil.example"
		sb.Spec.Policy.Rules[0].Hosts[0] = "evil.example"
		set := *allow("b.example")
		after, err := d.SetPolicy(t.Context(), ann, "web", set)
		if err != nil {
			t.Fatal(err)
		}
		set.Rules[0].Hosts[0] = "evil.example"
		after.Spec.Policy.Rules[0].Hosts[0] = "evil.example"
		got, err := d.Policy(t.Context(), ann, "web")
		if err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(got, *allow("b.example")) {
			t.Errorf("the policy is %+v", got)
		}
		got.Rules[0].Hosts[0] = "evil.example"
		if again, _ := d.Policy(t.Context(), ann, "web"); !cmp.Equal(again, *allow("b.example")) {
			t.Errorf("the policy is %+v", again)
		}
		w.check(t)
	})
}

func TestPolicyOfAStoppedSandbox(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		id := create(t, d, networked("web")).ID
		d.Stop(t.Context(), ann, "web")
		wantCalls(t, "set", w.calls(func() {
			if _, err := d.SetPolicy(t.Context(), ann, "web", *allow("b.example")); err != nil {
				t.Errorf("SetPolicy: %v", err)
			}
		}))
		if _, err := d.Start(t.Context(), ann, "web"); err != nil {
			t.Fatal(err)
		}
		if got := w.gate.Policy(id); !cmp.Equal(got, allow("b.example")) {
			t.Errorf("its gate goes by %+v", got)
		}
	})
}

// TestGateThatCannotBeTold: the caller hears of it, the record says what is
// meant, and the gate is told as soon as it can be.
func TestGateThatCannotBeTold(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		id := create(t, d, networked("web")).ID
		w.gate.SetHook(failing(sandboxtest.GateSet))
		_, err := d.SetPolicy(t.Context(), ann, "web", policy.Policy{})
		wantKind(t, "SetPolicy", err, sandbox.Internal)
		if got := get(t, d, "web"); len(got.Spec.Policy.Rules) != 0 {
			t.Errorf("recorded: %+v", got.Spec.Policy)
		}
		pass(time.Minute)
		if len(w.gate.Policy(id).Rules) != 1 {
			t.Error("a gate that could not be told knows")
		}
		if n := len(w.calls(func() { pass(time.Minute) })); n < 4 || n > 10 {
			t.Errorf("it was tried %d times in a minute", n)
		}
		w.gate.SetHook(nil)
		pass(time.Minute)
		if len(w.gate.Policy(id).Rules) != 0 {
			t.Error("it was not told once it could be")
		}
		wantCalls(t, "later", w.calls(func() { pass(time.Hour) }))
	})
}

// TestSetPolicyIsEnded: a caller who leaves does not leave a gate untold.
func TestSetPolicyIsEnded(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		id := create(t, d, networked("web")).ID
		w.gate.SetHook(slow(sandboxtest.GateSet, 10*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = d.SetPolicy(ctx, ann, "web", policy.Policy{})
		if len(w.gate.Policy(id).Rules) != 0 {
			t.Error("the gate was not told")
		}
	})
}

func TestAdoptGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld()
		d := w.boot(t)
		lives, died := create(t, d, networked("lives")).ID, create(t, d, networked("died")).ID
		create(t, d, networked("stopped"))
		d.Stop(t.Context(), ann, "stopped")
		d.shutdown()
		w.gate.Plant("sb_aaaaaaaaaaaaaaaaaaaa")
		w.fake.Die(died, sandbox.EndCrashed)
		w.gate.SetHook(failing(sandboxtest.GateAdopt))
		d = w.boot(t)
		pass(time.Minute)
		if got := w.gate.Opened(false); !slices.Equal(got, []string{lives}) {
			t.Errorf("open: %v, want that of what lives alone", got)
		}
		if got := w.gate.Opened(true); len(got) != 0 {
			t.Errorf("watched over: %v, and none could be", got)
		}
		evs, _ := d.Events(t.Context(), ann, "lives")
		if !slices.ContainsFunc(evs, func(e sandbox.Event) bool { return e.Type == sandbox.EventError }) {
			t.Error("nothing says that a gate was not adopted")
		}
		// Whoever sets its policy adopts it first.
		_, err := d.SetPolicy(t.Context(), ann, "lives", policy.Policy{})
		wantKind(t, "SetPolicy", err, sandbox.Internal)
		w.gate.SetHook(nil)
		pass(time.Minute)
		w.check(t)
		wantState(t, d, "died", sandbox.StateStopped, sandbox.EndCrashed)
		d.shutdown()
	})
}

// TestGatelessDaemon: one that can have no gates starts nothing that needs
// one, and takes nothing for what it is not.
func TestGatelessDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld()
		d := w.boot(t)
		create(t, d, networked("old"))
		create(t, d, networked("runs"))
		d.Stop(t.Context(), ann, "old")
		d.shutdown()
		d = w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{w.wall}})
		pass(time.Minute)
		_, err := d.Start(t.Context(), ann, "old")
		wantKind(t, "Start", err, sandbox.Unsupported)
		wantState(t, d, "old", sandbox.StateStopped, sandbox.EndStopped)
		_, err = d.SetPolicy(t.Context(), ann, "runs", policy.Policy{})
		wantKind(t, "SetPolicy", err, sandbox.Unsupported)
		_, err = d.Create(t.Context(), ann, networked("new"), nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
		wantKind(t, "Remove", d.Remove(t.Context(), ann, "old", true), "")
		d.shutdown()
		d = w.boot(t)
		pass(time.Minute)
		d.shutdown()
		w.check(t) // of what was removed, the gate too
	})
}

// TestWallWithoutLinks: a network is had behind those walls alone that can.
func TestWallWithoutLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateWorld()
		d := w.bootWith(t, sandbox.Options{
			Store: &w.store, Gate: w.gate, Backends: []sandbox.Backend{w.wall, sandboxtest.New("process")},
		})
		spec := networked("web")
		spec.Isolation = "process"
		_, err := d.Create(t.Context(), ann, spec, nil)
		wantKind(t, "Create", err, sandbox.Unsupported)
		spec.Stronger = []string{"gvisor"}
		sb := create(t, d, spec)
		if sb.Backend != "gvisor" || !strings.Contains(sb.Why, "process can't") {
			t.Errorf("behind %s: %s", sb.Backend, sb.Why)
		}
		d.shutdown()
		w.check(t)
	})
}

// SetPolicy is SetNetwork with the secrets that a sandbox has.
func (d *daemon) SetPolicy(ctx context.Context, c sandbox.Caller, ref string, p policy.Policy) (*sandbox.Sandbox, error) {
	return d.SetNetwork(ctx, c, ref, sandbox.NetworkChange{Policy: p})
}
