package sandbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/sandbox/sandboxtest"
)

// TestSetNetworkSecrets: what a change brings is kept before the gate goes by
// it, and a change that can't be leaves everything as it was.
func TestSetNetworkSecrets(t *testing.T) {
	inGateBubble(t, func(t *testing.T, w *gateWorld, d *daemon) {
		spec := networked("web")
		sb := create(t, d, spec)
		create(t, d, sandbox.Spec{Name: "off"})
		before := append([]string(nil), sb.Spec.Secrets...)
		bad := []struct {
			name, ref string
			ch        sandbox.NetworkChange
			want      sandbox.Kind
		}{
			{"no-value", "web", sandbox.NetworkChange{Policy: *keyed("NEW"), Secrets: []string{"NEW"}}, sandbox.NotFound},
			{"not-named", "web", sandbox.NetworkChange{Policy: *keyed("NEW"), Secrets: []string{}, Values: map[string]string{"NEW": "v"}}, sandbox.Invalid},
			{"no-place", "web", sandbox.NetworkChange{Policy: *keyed("NEW"), Secrets: []string{}}, sandbox.Invalid},
			{"changed-meanwhile", "web", sandbox.NetworkChange{Policy: *allow("a.example"), If: "another"}, sandbox.Conflict},
			{"unnetworked", "off", sandbox.NetworkChange{Policy: *allow("a.example"), Secrets: []string{}}, sandbox.Conflict},
		}
		for _, tt := range bad {
			got := w.calls(func() {
				_, err := d.SetNetwork(t.Context(), ann, tt.ref, tt.ch)
				wantKind(t, tt.name, err, tt.want)
			})
			wantCalls(t, tt.name, got)
		}
		change := sandbox.NetworkChange{Policy: *keyed("NEW"), Secrets: []string{"NEW"}, Values: map[string]string{"NEW": "v"}}
		w.gate.SetHook(failing(sandboxtest.GateKeep))
		if _, err := d.SetNetwork(t.Context(), ann, "web", change); err == nil {
			t.Error("a secret that could not be kept is no error")
		}
		w.gate.SetHook(nil)
		if sb, _ = d.Get(t.Context(), ann, "web"); !cmp.Equal(sb.Spec.Secrets, before) {
			t.Errorf("after failures it has the secrets %v, want %v", sb.Spec.Secrets, before)
		}
		var err error
		wantCalls(t, "change", w.calls(func() { sb, err = d.SetNetwork(t.Context(), ann, "web", change) }), "gate-keep", "gate-set")
		if err != nil || !cmp.Equal(sb.Spec.Secrets, []string{"NEW"}) || w.gate.Kept(sb.ID)["NEW"] != "v" {
			t.Fatalf("SetNetwork = %+v, %v; the gate has %v", sb, err, w.gate.Kept(sb.ID))
		}
		like, values, err := d.Like(t.Context(), ann, "web")
		if err != nil || like.Name != "" || values["NEW"] != "v" || !cmp.Equal(like.Policy, sb.Spec.Policy) {
			t.Errorf("Like = %+v, %v", like, err)
		}
		_, _, err = d.Like(t.Context(), bob, "web")
		wantKind(t, "Like of another's", err, sandbox.NotFound)
		d.Stop(t.Context(), ann, "web")
		narrow := sandbox.NetworkChange{Policy: policy.Policy{}, Secrets: []string{}}
		wantCalls(t, "stopped", w.calls(func() { sb, err = d.SetNetwork(t.Context(), ann, "web", narrow) }), "gate-keep")
		if err != nil || len(sb.Spec.Secrets) != 0 {
			t.Errorf("SetNetwork of a stopped one = %+v, %v", sb, err)
		}
		w.check(t)
	})
}
