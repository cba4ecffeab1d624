package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

// keyed is a policy whose one rule puts that secret in.
func keyed(secret string) *policy.Policy {
	p := allow("a.example")
	p.Rules[0].Secrets = []policy.Secret{{Name: secret, Header: "Authorization"}}
	return p
}

func TestValidateNetwork(t *testing.T) {
	type spec = sandbox.Spec
	public := &policy.Policy{Default: policy.DefaultPublic}
	gated := sandbox.Offer{Walls: []string{"gvisor"}, Gate: true}
	none := sandbox.Offer{Walls: []string{"gvisor"}}
	tests := []struct {
		name  string
		in    spec
		offer sandbox.Offer
		want  sandbox.Kind // "" means that it is valid
		text  string       // in the error
		hint  string
	}{
		{name: "nothing", offer: none},
		{name: "off", in: spec{Network: "off"}, offer: none},
		{name: "off-with-policy", in: spec{Network: "off", Policy: allow("a.example")}, offer: gated, want: sandbox.Invalid, text: "policy", hint: "leave out"},
		{name: "off-with-empty-policy", in: spec{Network: "off", Policy: &policy.Policy{}}, offer: gated, want: sandbox.Invalid},
		{name: "off-with-secret", in: spec{Network: "off", Secrets: []string{"A"}}, offer: gated, want: sandbox.Invalid, text: "secret A"},
		{name: "policy", in: spec{Network: "policy", Policy: allow("a.example")}, offer: gated},
		{name: "policy-by-itself", in: spec{Policy: allow("a.example")}, offer: gated},
		{name: "policy-none", in: spec{Network: "policy"}, offer: gated, want: sandbox.Invalid, text: "no policy"},
		{name: "policy-without-rules", in: spec{Policy: &policy.Policy{}}, offer: gated}, // all is refused, and recorded
		{name: "policy-default-public", in: spec{Network: "policy", Policy: public}, offer: gated, want: sandbox.Invalid, text: "public"},
		{name: "policy-mistaken", in: spec{Policy: allow("a..example")}, offer: gated, want: sandbox.Invalid, text: "policy: rules[0]"},
		{name: "policy-unknown-preset", in: spec{Policy: &policy.Policy{Presets: []string{"pipy"}}}, offer: gated, want: sandbox.Invalid, hint: "pypi"},
		{name: "public-by-its-policy", in: spec{Policy: public}, offer: gated},
		{name: "on", in: spec{Network: "on"}, offer: gated},
		{name: "on-with-rules", in: spec{Network: "on", Policy: allow("a.example")}, offer: gated},
		{name: "on-and-public", in: spec{Network: "on", Policy: public}, offer: gated},
		{name: "on-and-deny", in: spec{Network: "on", Policy: &policy.Policy{Default: policy.DefaultDeny}}, offer: gated, want: sandbox.Invalid, text: "deny"},
		{name: "unknown", in: spec{Network: "host"}, offer: gated, want: sandbox.Invalid, hint: "off, on or policy"},
		{name: "unknown-with-control", in: spec{Network: "on\x1b[2J"}, offer: gated, want: sandbox.Invalid, text: `\x1b`},
		{name: "on-ungated", in: spec{Network: "on"}, offer: none, want: sandbox.Unsupported, hint: "doctor"},
		{name: "policy-ungated", in: spec{Policy: allow("a.example")}, offer: none, want: sandbox.Unsupported, hint: "doctor"},
		{name: "secret", in: spec{Policy: keyed("A"), Secrets: []string{"A"}}, offer: gated},
		{name: "secret-by-a-preset", in: spec{Policy: &policy.Policy{Presets: []string{"anthropic"}}, Secrets: []string{"ANTHROPIC_API_KEY"}}, offer: gated},
		{name: "secret-without-a-rule", in: spec{Policy: keyed("A"), Secrets: []string{"A", "B"}}, offer: gated, want: sandbox.Invalid, text: "secret B", hint: "Authorization"},
		{name: "secret-without-a-policy", in: spec{Network: "on", Secrets: []string{"B"}}, offer: gated, want: sandbox.Invalid, text: "secret B"},
		{name: "secret-unknown", in: spec{Policy: keyed("A")}, offer: gated, want: sandbox.Invalid, text: "A"},
		{name: "secret-twice", in: spec{Policy: keyed("A"), Secrets: []string{"A", "A"}}, offer: gated, want: sandbox.Invalid, text: "twice"},
		{name: "secret-not-a-name", in: spec{Policy: keyed("A"), Secrets: []string{"A", "\x1b[2J"}}, offer: gated, want: sandbox.Invalid, text: `\x1b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in.Clone()
			s := tt.in.Normalize(tt.offer)
			err := s.Validate(tt.offer)
			wantKind(t, "Validate", err, tt.want)
			if e, ok := errors.AsType[*sandbox.Error](err); ok {
				if !strings.Contains(e.Msg, tt.text) || !strings.Contains(e.Hint, tt.hint) {
					t.Errorf("error %q, hint %q; want %q and %q in them", e.Msg, e.Hint, tt.text, tt.hint)
				}
				if strings.ContainsAny(e.Msg+e.Hint, "\x1b\n") || strings.Contains(e.Msg+e.Hint, "hunter2") {
					t.Errorf("error %q, hint %q: not what is fit to show", e.Msg, e.Hint)
				}
				return
			}
			if s.Networked() != (s.Network != "off") || s.Networked() != (s.Policy != nil) {
				t.Errorf("network %s with the policy %+v", s.Network, s.Policy)
			}
			if d := cmp.Diff(s, s.Normalize(tt.offer)); d != "" {
				t.Errorf("normalised once more it changes:\n%s", d)
			}
			if d := cmp.Diff(before, tt.in); d != "" {
				t.Errorf("the caller's own spec was changed:\n%s", d)
			}
		})
	}
}
