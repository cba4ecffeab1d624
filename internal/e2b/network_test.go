package e2b_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// What is not public is not the key's to open.
func TestCreateOpensNothingPrivate(t *testing.T) {
	const body = `{"templateID":"base","network":{"allowOut":["169.254.169.254"]}}`
	r := newRig(t)
	r.json(t, "POST", "/v2/sandboxes", body, 201, nil)
	r.caller.PrivateNetwork = false
	if rec := r.json(t, "POST", "/v2/sandboxes", body, 403, nil); !strings.Contains(rec.Body.String(), "169.254.169.254") {
		t.Errorf("the answer is %s", rec.Body)
	}
	if len(r.specs) != 1 {
		t.Errorf("%d sandboxes were made", len(r.specs))
	}
}

func TestCreateNetwork(t *testing.T) {
	tests := []struct {
		name, body string
		network    string
		public     bool
		rules      []string
		values     map[string]string
		notice     string
		off        bool // the server gives no internet for the asking
	}{
		{name: "not-given", body: `{"templateID":"base","allow_internet_access":true}`, off: true, notice: "e2b_internet"},
		{
			name: "not-given-but-names", off: true, body: `{"templateID":"base","allow_internet_access":true,"network":{"allowOut":["a.example"]}}`,
			network: "policy", rules: []string{"allow-out/names"}, notice: "e2b_internet",
		},
		{
			name: "not-given-nor-said", off: true, body: `{"templateID":"base","network":{"allowOut":["a.example"]}}`,
			network: "policy", rules: []string{"allow-out/names"}, notice: "names are for HTTP",
		},
		{name: "nothing", body: `{"templateID":"base"}`},
		{name: "empty", body: `{"templateID":"base","network":{}}`},
		{name: "closed", body: `{"templateID":"base","allow_internet_access":false,"network":{"allowPublicTraffic":false}}`},
		{name: "open", body: `{"templateID":"base","allow_internet_access":true}`, network: "on", public: true, notice: "dialled by number"},
		{
			name: "denied-range", body: `{"templateID":"base","network":{"denyOut":["192.0.2.0/24"]}}`,
			network: "on", public: true, rules: []string{"deny-out"}, notice: "dialled by number",
		},
		{
			name: "names", body: `{"templateID":"base","network":{"allowOut":["a.example","*.b.example"],"denyOut":["0.0.0.0/0"]}}`,
			network: "policy", rules: []string{"allow-out/names"}, notice: "names are for HTTP",
		},
		{
			name:    "names-while-closed",
			body:    `{"templateID":"base","allow_internet_access":false,"network":{"allowOut":["a.example"]}}`,
			network: "policy", rules: []string{"allow-out/names"}, notice: "names are for HTTP",
		},
		{
			name: "headers",
			body: `{"templateID":"base","network":{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"],"rules":{
				"a.example":[{"transform":{"headers":{"Authorization":"Bearer hunter2"}}}],
				"other.example":[{"transform":{"headers":{"X-Key":"hunter3"}}}]}}}`,
			network: "policy", rules: []string{"allow-out/names", ""}, values: map[string]string{"E2B_A_EXAMPLE_AUTHORIZATION": "hunter2"},
			notice: "allowOut does not have it",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.internet(!tt.off)
			rec := r.json(t, "POST", "/v2/sandboxes", tt.body, 201, nil)
			spec := r.specs[0]
			var rules []string
			public := false
			if spec.Policy != nil {
				public = spec.Policy.Default == policy.DefaultPublic
				for _, rule := range spec.Policy.Rules {
					rules = append(rules, rule.ID)
				}
			}
			got := []any{spec.Network, public, rules, spec.SecretValues, len(spec.Secrets)}
			if diff := cmp.Diff([]any{tt.network, tt.public, tt.rules, tt.values, len(tt.values)}, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			notice := rec.Header().Get("Carboy-Notice")
			if !strings.Contains(notice, tt.notice) || (notice == "") != (tt.notice == "") || strings.Contains(notice+rec.Body.String(), "hunter") {
				t.Errorf("notice %q, body %s", notice, rec.Body)
			}
			var detail struct{ AllowInternetAccess bool }
			r.json(t, "GET", "/sandboxes/"+r.boxes[0].ID, "", 200, &detail)
			if detail.AllowInternetAccess != tt.public {
				t.Errorf("allowInternetAccess = %t, want %t", detail.AllowInternetAccess, tt.public)
			}
		})
	}
}
