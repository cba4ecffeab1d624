package sandbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// inResizeBubble is inBubble for a wall that can change limits.
func inResizeBubble(t *testing.T, later map[string]string, test func(t *testing.T, d *daemon, r sandboxtest.Resizer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := sandboxtest.Resizer{Fake: w.fake, Later: later}
		d := w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{r}})
		test(t, d, r)
		d.shutdown()
		w.check(t)
	})
}

func whens(set []sandbox.Setting) map[string]string {
	out := map[string]string{}
	for _, s := range set {
		out[s.What] = s.When
	}
	return out
}

const gib = 1 << 30

// TestSet: what a wall can change holds at once, what it can't from the next start on,
// and each is said.
func TestSet(t *testing.T) {
	later := map[string]string{sandbox.LimitPIDs: "so it is"}
	inResizeBubble(t, later, func(t *testing.T, d *daemon, r sandboxtest.Resizer) {
		create(t, d, sandbox.Spec{Name: "web"})
		ttl, gone := time.Hour, "x"
		sb, set, err := d.Set(t.Context(), ann, "web", sandbox.Change{
			CPUs: 3, Memory: 4 * gib, PIDs: 77, Disk: 16 * gib, TTL: &ttl, OnExpiry: sandbox.OnExpiryRemove,
			Labels: map[string]*string{"a": &gone},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"cpus": "now", "memory": "now", "pids": "next start", "disk": "next start", "ttl": "now", "on_expiry": "now", "label a": "now",
		}
		if d := cmp.Diff(want, whens(set)); d != "" {
			t.Errorf("when -want +got\n%s", d)
		}
		l := sb.Spec.Limits
		if l.CPUs != 3 || l.Memory != 4*gib || l.PIDs != sandbox.DefaultPIDs || l.Disk != sandbox.DefaultDisk || !l.Explicit["memory"] {
			t.Errorf("limits = %+v", l)
		}
		if has, _ := r.LimitsOf(sb.ID); has == nil || has.Memory != 4*gib || has.CPUs != 3 || has.PIDs != sandbox.DefaultPIDs {
			t.Errorf("the instance has %+v", has)
		}
		if sb.Next == nil || sb.Next.PIDs != 77 || sb.Next.Disk != 16*gib || sb.Next.Why["pids"] != "so it is" || len(sb.Pending()) != 2 {
			t.Errorf("next = %+v", sb.Next)
		}
		if !sb.ExpiresAt.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("it expires at %v", sb.ExpiresAt)
		}
		evs, _ := d.Events(t.Context(), ann, "web")
		if last := evs[len(evs)-1]; last.Type != "set" || !strings.HasPrefix(last.Message, "uid:1000 set cpus from 2 to 3; memory from 2g to 4g; pids from 1024 to 77 at its next start") {
			t.Errorf("the log says %+v", last)
		}
		d.Stop(t.Context(), ann, "web")
		if sb, err = d.Start(t.Context(), ann, "web"); err != nil || sb.Next != nil || sb.Spec.Limits.PIDs != 77 || sb.Spec.Limits.Disk != 16*gib {
			t.Errorf("started again: %+v, %v", sb, err)
		}
		if _, disk := r.LimitsOf(sb.ID); disk != 16*gib {
			t.Errorf("its disk was grown to %d", disk)
		}
	})
}

// TestSetRefuses: with one mistake nothing is changed.
func TestSetRefuses(t *testing.T) {
	inResizeBubble(t, nil, func(t *testing.T, d *daemon, _ sandboxtest.Resizer) {
		create(t, d, sandbox.Spec{Name: "web"})
		create(t, d, sandbox.Spec{Name: "kept", Labels: map[string]string{sandbox.ReservedLabels + "session": "k"}})
		before := get(t, d, "web")
		short, mark := time.Millisecond, "mine"
		for name, tt := range map[string]struct {
			ref  string
			c    sandbox.Caller
			ch   sandbox.Change
			want sandbox.Kind
		}{
			"others":         {"web", bob, sandbox.Change{Memory: gib}, sandbox.NotFound},
			"sessions":       {"kept", ann, sandbox.Change{Memory: gib}, sandbox.Conflict},
			"memory":         {"web", ann, sandbox.Change{CPUs: 1, Memory: 1}, sandbox.Invalid},
			"machine":        {"web", ann, sandbox.Change{CPUs: 1, Memory: 1 << 50}, sandbox.Unsupported},
			"cpus":           {"web", ann, sandbox.Change{PIDs: 9, CPUs: 99}, sandbox.Unsupported},
			"shrinking":      {"web", ann, sandbox.Change{CPUs: 1, Disk: gib}, sandbox.Invalid},
			"ttl":            {"web", ann, sandbox.Change{CPUs: 1, TTL: &short}, sandbox.Invalid},
			"on-expiry":      {"web", ann, sandbox.Change{CPUs: 1, OnExpiry: "hide"}, sandbox.Invalid},
			"reserved-label": {"web", ann, sandbox.Change{CPUs: 1, Labels: map[string]*string{"carboy.session": &mark}}, sandbox.Invalid},
			"reserved-gone":  {"web", ann, sandbox.Change{CPUs: 1, Labels: map[string]*string{"carboy.session": nil}}, sandbox.Invalid},
			"network":        {"web", ann, sandbox.Change{CPUs: 1, Network: "wide"}, sandbox.Invalid},
			"no-gate":        {"web", ann, sandbox.Change{CPUs: 1, Network: "on"}, sandbox.Unsupported},
		} {
			_, _, err := d.Set(t.Context(), tt.c, tt.ref, tt.ch)
			wantKind(t, name, err, tt.want)
		}
		if d := cmp.Diff(before, get(t, d, "web")); d != "" {
			t.Errorf("after what was refused -before +after\n%s", d)
		}
	})
}

// TestSetNetworkOfLinkless: a network comes with the next start, a closed one at
// once, and what changes a policy alone says what does.
func TestSetNetworkOfLinkless(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		create(t, d, sandbox.Spec{Name: "web"})
		_, err := d.SetPolicy(t.Context(), ann, "web", *allow("a.example"))
		wantKind(t, "SetPolicy", err, sandbox.Conflict)
		if e, ok := err.(*sandbox.Error); !ok || e.Hint != "carboy set web --allow HOST" {
			t.Errorf("SetPolicy = %+v, want a hint that works", err)
		}
		sb, set, err := d.Set(t.Context(), ann, "web", sandbox.Change{Policy: allow("a.example")})
		if err != nil || whens(set)["network"] != "next start" || sb.Spec.Networked() || sb.Next == nil {
			t.Fatalf("Set = %+v, %+v, %v", sb, set, err)
		}
		if p, _ := d.Policy(t.Context(), ann, "web"); len(p.Rules) != 1 {
			t.Errorf("Policy = %+v, want what is to come", p)
		}
		d.Stop(t.Context(), ann, "web")
		wantCalls(t, "start", w.calls(func() { sb, err = d.Start(t.Context(), ann, "web") }), "gate-open", "start", "gate-verify")
		if err != nil || sb.Spec.Network != sandbox.NetworkPolicy || sb.Next != nil {
			t.Errorf("Start = %+v, %v", sb, err)
		}
		wantCalls(t, "off", w.calls(func() { sb, set, err = d.Set(t.Context(), ann, "web", sandbox.Change{Network: "off"}) }), "gate-set")
		if err != nil || whens(set)["network"] != "now" || !cmp.Equal(*sb.Spec.Policy, policy.Policy{}) {
			t.Errorf("Set = %+v, %+v, %v", sb, set, err)
		}
		w.check(t)
	})
}

// TestSetKilled: wherever a daemon is killed, the next one has all of a change or
// nothing of it, and the instance the limits of the record.
func TestSetKilled(t *testing.T) {
	for n := 1; ; n++ {
		done := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			r := sandboxtest.Resizer{Fake: w.fake}
			boot := func() *daemon {
				return w.bootWith(t, sandbox.Options{Store: &w.store, Backends: []sandbox.Backend{r}})
			}
			d := boot()
			sb := create(t, d, sandbox.Spec{Name: "web"})
			d.shutdown()

			done = w.killedIn(t, n, r, sandboxtest.Resize, func(d *daemon) error {
				_, _, err := d.Set(context.Background(), ann, "web", sandbox.Change{Memory: 4 * gib, CPUs: 3, Disk: 16 * gib})
				return err
			})

			d = boot()
			synctest.Wait()
			got := get(t, d, "web")
			has, _ := r.LimitsOf(sb.ID)
			changed := got.Spec.Limits.Memory == 4*gib
			switch {
			case done && !changed:
				t.Errorf("step %d: an answered change is lost: %+v", n, got.Spec.Limits)
			case changed && (has == nil || has.Memory != 4*gib || got.Spec.Limits.CPUs != 3 || got.Next == nil || got.Next.Disk != 16*gib):
				t.Errorf("step %d: the record has %+v, %+v, the instance %+v", n, got.Spec.Limits, got.Next, has)
			case !changed && (has != nil || got.Next != nil || got.Spec.Limits.CPUs == 3):
				t.Errorf("step %d: half of it: the record has %+v, %+v, the instance %+v", n, got.Spec.Limits, got.Next, has)
			}
			d.shutdown()
			w.check(t)
		})
		if done {
			if n < 5 {
				t.Errorf("only %d steps", n)
			}
			return
		}
	}
}

// Of many who add rules at once none undoes what another did, with a network and without.
func TestAddedAtOnce(t *testing.T) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprintf("network-%v", linked), func(t *testing.T) {
			inGateBubble(t, func(t *testing.T, _ *gateWorld, d *daemon) { addAtOnce(t, d, linked) })
		})
	}
	t.Run("public", func(t *testing.T) {
		inGateBubble(t, func(t *testing.T, _ *gateWorld, d *daemon) {
			create(t, d, sandbox.Spec{Name: "web", Network: sandbox.NetworkOn, Policy: &policy.Policy{Default: policy.DefaultPublic}})
			_, err := d.SetNetwork(t.Context(), ann, "web", sandbox.NetworkChange{Policy: *allow("h.example"), Add: true})
			if err == nil {
				_, _, err = d.Set(t.Context(), ann, "web", sandbox.Change{Policy: allow("i.example"), Network: sandbox.NetworkPolicy, Add: true})
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := get(t, d, "web").Spec; s.Network != sandbox.NetworkOn || s.Policy.Default != policy.DefaultPublic || len(s.Policy.Rules) != 2 {
				t.Errorf("after rules were added it has the network %s and the policy %+v", s.Network, s.Policy)
			}
		})
	})
}

func addAtOnce(t *testing.T, d *daemon, linked bool) {
	t.Helper()
	const all = 8
	spec := sandbox.Spec{Name: "web"}
	if linked {
		spec = networked("web")
	}
	create(t, d, spec)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			p := allow(fmt.Sprintf("h%d.example", i))
			var err error
			if linked && i%2 == 0 {
				_, err = d.SetNetwork(t.Context(), ann, "web", sandbox.NetworkChange{Policy: *p, Add: true})
			} else {
				_, _, err = d.Set(t.Context(), ann, "web", sandbox.Change{Policy: p, Add: true})
			}
			if err != nil {
				t.Errorf("add: %v", err)
			}
		})
	}
	wg.Wait()
	p, err := d.Policy(t.Context(), ann, "web")
	if err != nil {
		t.Fatal(err)
	}
	had := map[string]bool{}
	for _, r := range p.Rules {
		had[r.Hosts[0]] = true
	}
	for i := range all {
		if !had[fmt.Sprintf("h%d.example", i)] {
			t.Errorf("h%d.example was lost: %v", i, had)
		}
	}
	_, _, err = d.Set(t.Context(), ann, "web", sandbox.Change{Policy: &policy.Policy{Default: policy.DefaultPublic}, Add: true})
	if sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("a default was added: %v", err)
	}
}
