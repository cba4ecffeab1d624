package sandbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestResolveNetwork(t *testing.T) {
	rules := []policy.Rule{{Hosts: []string{"a.example"}}}
	deny, open, named := &policy.Policy{Rules: rules}, &policy.Policy{Default: policy.DefaultPublic, Rules: rules}, &policy.Policy{Default: policy.DefaultDeny}
	tests := []struct {
		name    string
		network string
		p       *policy.Policy
		want    string
		policy  *policy.Policy
		fails   bool
	}{
		{name: "nothing"},
		{name: "rules", p: deny, want: "policy", policy: deny},
		{name: "public", p: open, want: "on", policy: open},
		{name: "off", network: "off", want: "off"},
		{name: "off-with-rules", network: "off", p: deny, fails: true},
		{name: "on", network: "on", want: "on", policy: &policy.Policy{Default: policy.DefaultPublic}},
		{name: "on-with-rules", network: "on", p: deny, want: "on", policy: open},
		{name: "on-and-public", network: "on", p: open, want: "on", policy: open},
		{name: "on-and-deny", network: "on", p: named, fails: true},
		{name: "policy", network: "policy", p: named, want: "policy", policy: named},
		{name: "policy-without", network: "policy", fails: true},
		{name: "policy-and-public", network: "policy", p: open, fails: true},
		{name: "unknown", network: "host", fails: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, p, err := sandbox.ResolveNetwork(tt.network, tt.p)
			if (err != nil) != tt.fails || tt.fails && sandbox.KindOf(err) != sandbox.Invalid {
				t.Fatalf("error %v, want an invalid one: %t", err, tt.fails)
			}
			if diff := cmp.Diff(tt.policy, p); diff != "" || got != tt.want {
				t.Errorf("network %q, want %q; policy (-want +got):\n%s", got, tt.want, diff)
			}
		})
	}
	if deny.Default != "" {
		t.Error("the caller's policy was changed")
	}
}

func TestCheckPolicy(t *testing.T) {
	with := func(name string) *policy.Policy {
		return &policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}, Secrets: []policy.Secret{{Name: name, Header: "X-A"}}}}}
	}
	tests := []struct {
		name    string
		p       *policy.Policy
		secrets []string
		want    string // of the error; "": none
		hint    string
	}{
		{name: "nothing"},
		{name: "used", p: with("A"), secrets: []string{"A"}},
		{name: "by-a-preset", p: &policy.Policy{Presets: []string{"anthropic"}}, secrets: []string{"ANTHROPIC_API_KEY"}},
		{name: "preset-without", p: &policy.Policy{Presets: []string{"anthropic"}}},
		{name: "not-given", p: with("A"), want: "A", hint: "--secret A"},
		{name: "unused", p: with("A"), secrets: []string{"A", "B"}, want: "no rule has a place for it", hint: "header: Authorization"},
		{name: "no-policy", secrets: []string{"ANTHROPIC_API_KEY"}, want: "no rule has a place", hint: "--allow anthropic, or "},
		{name: "mistake", p: &policy.Policy{Rules: []policy.Rule{{Hosts: []string{"a.example"}, Ports: []string{"0"}}}}, want: "policy: rules[0].ports"},
		{name: "unknown-preset", p: &policy.Policy{Presets: []string{"pnm"}}, want: "presets[0]", hint: "npm"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := sandbox.CheckPolicy(tt.p, tt.secrets)
			if tt.want == "" && tt.hint == "" {
				if err != nil {
					t.Errorf("Check = %v", err)
				}
				return
			}
			e, ok := errors.AsType[*sandbox.Error](err)
			if !ok || e.Kind != sandbox.Invalid || !strings.Contains(e.Msg, tt.want) || !strings.Contains(e.Hint, tt.hint) {
				t.Errorf("Check = %#v, want %q and hint %q", err, tt.want, tt.hint)
			}
		})
	}
}

func TestPolicyError(t *testing.T) {
	var many []error
	for i := range 9 {
		many = append(many, &policy.Error{Where: fmt.Sprintf("rules[%d]", i), Problem: "is wrong"})
	}
	other := errors.New("other")
	ours := sandbox.Errorf(sandbox.Denied, "no").WithHint("h")
	tests := []struct {
		name, what string
		err        error
		want, hint string
		same       bool
	}{
		{name: "nil", same: true},
		{name: "other", err: other, same: true},
		{name: "ours", err: ours, same: true},
		{name: "one", what: "policy", err: &policy.Error{Where: "dns", Problem: "is wrong", Hint: "mend it"}, want: "policy: dns: is wrong", hint: "mend it"},
		{name: "no-what", err: fmt.Errorf("read: %w", &policy.Error{Problem: "is wrong"}), want: "is wrong"},
		{name: "two", what: "p", err: errors.Join(&policy.Error{Problem: "a"}, &policy.Error{Problem: "b", Hint: "c"}), want: "p: a; b", hint: "c"},
		{
			name: "many", what: "p", err: errors.Join(many...),
			want: "p: rules[0]: is wrong; rules[1]: is wrong; rules[2]: is wrong; rules[3]: is wrong; rules[4]: is wrong; and 4 more",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sandbox.PolicyError(tt.what, tt.err)
			if tt.same {
				if got != tt.err { // the very same
					t.Errorf("Error = %v, want what it was given", got)
				}
				return
			}
			e, ok := errors.AsType[*sandbox.Error](got)
			if !ok || e.Kind != sandbox.Invalid || e.Msg != tt.want || e.Hint != tt.hint {
				t.Errorf("Error = %#v, want %q, %q", got, tt.want, tt.hint)
			}
		})
	}
}

func TestValidSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "_": true, "a_1": true, strings.Repeat("a", 128): true,
		"": false, "1": false, "a-b": false, "a b": false, "a\n": false, "ä": false, strings.Repeat("a", 129): false,
	} {
		if got := sandbox.ValidSecret(name); got != want {
			t.Errorf("ValidSecret(%q) = %t", name, got)
		}
	}
}
