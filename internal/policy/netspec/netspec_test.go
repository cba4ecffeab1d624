package netspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/api"
	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/policy/netspec"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
)

func TestTest(t *testing.T) {
	p := policy.Policy{Rules: []policy.Rule{{
		ID: "a", Hosts: []string{"a.example"}, Matches: []policy.Match{{Methods: []string{"GET"}}},
		Secrets: []policy.Secret{{Name: "A", Header: "X-A"}},
	}}}
	tests := []struct {
		request, address string
		allowed          bool
		code             string
		secrets          []string
	}{
		{request: "GET https://a.example/", allowed: true, secrets: []string{"A"}},
		{request: "PUT https://a.example/", code: "request_refused"},
		{request: "GET https://b.example/", code: "not_allowed"},
		{request: "GET https://a.example/", address: "10.0.0.1", code: "closed_address"},
		{request: "GET https://a.example/", address: "203.0.113.5", code: "closed_address"},
		{request: "dns:a.example", allowed: true},
	}
	for _, tt := range tests {
		v, err := netspec.Test(p, []string{"A"}, api.PolicyTestRequest{Request: tt.request, Address: tt.address})
		if err != nil {
			t.Fatal(err)
		}
		if v.Allowed != tt.allowed || v.Code != tt.code || !cmp.Equal(v.Secrets, tt.secrets) || v.Reason == "" || len(v.Steps) == 0 || v.Request != tt.request {
			t.Errorf("%s %s: %+v", tt.request, tt.address, v)
		}
	}
	for _, bad := range []api.PolicyTestRequest{{}, {Request: "GET ://x"}, {Request: "ftp://a.example"}, {Request: "dns:a.example", Address: "x"}} {
		if _, err := netspec.Test(p, []string{"A"}, bad); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %v, want an invalid one", bad, err)
		}
	}
	if _, err := netspec.Test(p, nil, api.PolicyTestRequest{Request: "dns:a.example"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("without its secret: %v, want an invalid one", err)
	}
}

// TestNote: where a rule names addresses, an answer for a name says for which it holds.
func TestNote(t *testing.T) {
	npm := policy.Rule{ID: "npm", Hosts: []string{"npm.example"}, Matches: []policy.Match{{Methods: []string{"GET"}}}}
	wide := policy.Policy{Rules: []policy.Rule{npm, {ID: "wide", Addresses: []string{"192.0.2.7"}}}}
	tests := []struct {
		name             string
		p                policy.Policy
		request, address string
		allowed, note    bool
	}{
		{name: "refused", p: wide, request: "PUT https://npm.example/", note: true},
		{name: "allowed", p: wide, request: "GET https://npm.example/", allowed: true, note: true},
		{name: "address-said", p: wide, request: "PUT https://npm.example/", address: "192.0.2.7", allowed: true},
		{name: "address-asked", p: wide, request: "PUT https://192.0.2.7/", allowed: true},
		{name: "name-not-resolved", p: wide, request: "GET https://other.example/"},
		{name: "dns", p: wide, request: "dns:npm.example", allowed: true},
		{name: "no-address-rule", p: policy.Policy{Rules: []policy.Rule{npm}}, request: "PUT https://npm.example/"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, err := netspec.Test(tt.p, nil, api.PolicyTestRequest{Request: tt.request, Address: tt.address})
			if err != nil || v.Allowed != tt.allowed || (v.Note != "") != tt.note {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestView(t *testing.T) {
	for _, p := range policy.Presets() {
		v := netspec.View(p)
		if v.Name != p.Name || v.Summary != p.Summary || len(v.Opens) != len(p.Rules) || len(v.Rules) != len(p.Rules) {
			t.Errorf("%s is shown as %+v", p.Name, v)
		}
		if diff := cmp.Diff(p.Rules, v.Rules); diff != "" {
			t.Errorf("%s: its rules (-preset +shown):\n%s", p.Name, diff)
		}
	}
}
