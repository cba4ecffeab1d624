package template

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carboy-sandbox/carboy/internal/egress/netlog"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// A build has the network that was asked for with it, instead of the daemon's, and its
// record says which. With another network a step is run again.
func TestBuildNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) {
			o.Network, o.Policy = sandbox.NetworkOn, &policy.Policy{Default: policy.DefaultPublic}
		})
		var networks []string
		w.create = func(s sandbox.Spec) error {
			networks = append(networks, s.Network)
			return nil
		}
		rules, err := policy.ParseAllow("npm")
		if err != nil {
			t.Fatal(err)
		}
		npm := &policy.Policy{Rules: rules}
		for _, tt := range []struct {
			network string
			policy  *policy.Policy
			want    string
			ran     int
		}{
			{"", nil, sandbox.NetworkOn, 1},
			{"", nil, sandbox.NetworkOn, 0}, // from the cache
			{sandbox.NetworkOff, nil, sandbox.NetworkOff, 1},
			{sandbox.NetworkPolicy, npm, sandbox.NetworkPolicy, 1},
			{sandbox.NetworkPolicy, npm, sandbox.NetworkPolicy, 0},
		} {
			networks = nil
			got := w.build(ann, "web", Plan{Steps: runs("npm ci"), Network: tt.network, Policy: tt.policy})
			if n := len(w.commands()); got.Network != tt.want || n != tt.ran || slices.ContainsFunc(networks, func(n string) bool { return n != tt.want }) {
				t.Errorf("%s: the record says %s, %d commands, sandboxes had %q", tt.want, got.Network, n, networks)
			}
			if (got.Policy == nil) != (tt.want == sandbox.NetworkOff) {
				t.Errorf("%s: the record has the policy %+v", tt.want, got.Policy)
			}
		}
		secret := &policy.Policy{Rules: []policy.Rule{{
			ID: "a", Hosts: []string{"a.example"}, Secrets: []policy.Secret{{Name: "TOKEN", Header: "Authorization"}},
		}}}
		for name, p := range map[string]Plan{
			"contradiction": {Network: sandbox.NetworkOff, Policy: npm}, "unknown": {Network: "maybe"},
			"secret": {Network: sandbox.NetworkPolicy, Policy: secret},
		} {
			if err := p.check(); sandbox.KindOf(err) != sandbox.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A step that fails and was refused hosts names them, and the flags.
func TestRefusedStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run = func(context.Context, string) (Exit, error) { return Exit{Code: 1, Text: "exit status 1"}, nil }
		w.denied = []netlog.Record{
			{Verdict: netlog.Deny, Code: "no_network", Protocol: "dns", Method: "A", Host: "api.openai.com"},
			{Verdict: netlog.Deny, Code: "no_network", Protocol: "dns", Method: "A", Host: "\x1b[2J"},
		}
		got := w.ended(w.begin(ann, "web", Plan{Steps: runs("npm ci")}))
		const want = `: exit status 1; refused: \x1b[2j, api.openai.com, for the build has no network`
		const hint = "to allow: carboy template build --allow openai"
		if got.Status != Failed || !strings.HasSuffix(got.Reason.Message, want) || got.Reason.Hint != hint {
			t.Errorf("got %+v, want %q", got.Reason, want)
		}
		w.denied = nil
		if got := w.ended(w.begin(ann, "web", Plan{Steps: runs("npm ci")})); strings.Contains(got.Reason.Message, "refused") {
			t.Errorf("nothing was refused: %q", got.Reason.Message)
		}
	})
}
