package e2b_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
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
		values     sandbox.SecretValues
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
			network: "policy", rules: []string{"allow-out/names", ""}, values: sandbox.SecretValues{"E2B_A_EXAMPLE_AUTHORIZATION": "hunter2"},
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
			got := []any{spec.Network, public, rules, r.values[0], len(spec.Secrets)}
			if diff := cmp.Diff([]any{tt.network, tt.public, tt.rules, tt.values, len(tt.values)}, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
			notice := rec.Header().Get("Carboy-Notice")
			if !strings.Contains(notice, tt.notice) || (notice == "") != (tt.notice == "") || strings.Contains(notice+rec.Body.String(), "hunter") {
				t.Errorf("notice %q, body %s", notice, rec.Body)
			}
			var detail struct{ AllowInternetAccess bool }
			r.json(t, "GET", "/sandboxes/"+r.instances[0].ID, "", 200, &detail)
			if detail.AllowInternetAccess != tt.public {
				t.Errorf("allowInternetAccess = %t, want %t", detail.AllowInternetAccess, tt.public)
			}
		})
	}
}

func TestCreateTraffic(t *testing.T) {
	r := newRig(t)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","autoResume":{"enabled":true},
		"network":{"allowPublicTraffic":false,"maskRequestHost":"localhost:${PORT}"}}`, 201, nil)
	want := sandbox.Traffic{Restricted: true, MaskHost: "localhost:${PORT}", AutoResume: true}
	if diff := cmp.Diff(want, r.specs[0].Traffic); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	sb := r.instances[0]
	sb.TrafficToken = "traffic"
	var got struct {
		TrafficAccessToken string
		Network            map[string]any
		Lifecycle          struct{ AutoResume bool }
	}
	r.json(t, "GET", "/sandboxes/"+sb.ID, "", 200, &got)
	if diff := cmp.Diff(map[string]any{"allowPublicTraffic": false, "maskRequestHost": "localhost:${PORT}"}, got.Network); diff != "" || !got.Lifecycle.AutoResume {
		t.Errorf("it is shown as %+v (-want +got):\n%s", got, diff)
	}
	r.json(t, "POST", "/sandboxes/"+sb.ID+"/connect", `{"timeout":1}`, 200, &got)
	if got.TrafficAccessToken != "traffic" {
		t.Errorf("the token is %q", got.TrafficAccessToken)
	}
	r.caller.Exec = false
	got.TrafficAccessToken = ""
	r.json(t, "POST", "/sandboxes/"+sb.ID+"/connect", `{"timeout":1}`, 200, &got)
	if got.TrafficAccessToken != "" {
		t.Error("a key that may not go inside got the token")
	}
}

func TestSetNetwork(t *testing.T) {
	r := newRig(t)
	r.internet(false)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base"}`, 201, nil)
	r.json(t, "POST", "/sandboxes", `{"templateID":"base","network":{"denyOut":["0.0.0.0/0"]}}`, 201, nil)
	r.instances[1].Spec.Secrets = []string{"MINE", "E2B_OLD_EXAMPLE_X_KEY"}
	if rec := r.json(t, "PUT", "/sandboxes/"+r.instances[0].ID+"/network", `{}`, 409, nil); !strings.Contains(rec.Body.String(), "denyOut") {
		t.Errorf("without a network: %s", rec.Body)
	}
	path := "/sandboxes/" + r.instances[1].ID
	tests := []struct {
		name, body, notice string
		internet           bool
		network            string
		secrets            []string
		shown              map[string]any
	}{
		{
			name: "names", body: `{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"]}`, notice: "names are for HTTP", network: "policy",
			secrets: []string{"MINE"}, shown: map[string]any{"allowOut": []any{"a.example"}, "denyOut": []any{"0.0.0.0/0"}},
		},
		{
			name: "headers", network: "policy", notice: "names are for HTTP",
			body: `{"allowOut":["a.example"],"denyOut":["0.0.0.0/0"],"rules":{"a.example":[{"transform":{"headers":{"X-Key":"hunter2"}}}]}}`,
			shown: map[string]any{
				"allowOut": []any{"a.example"}, "denyOut": []any{"0.0.0.0/0"},
				"rules": map[string]any{"a.example": []any{map[string]any{"transform": map[string]any{"headers": map[string]any{"X-Key": "[secret]"}}}}},
			},
			secrets: []string{"MINE", "E2B_A_EXAMPLE_X_KEY"},
		},
		{
			name: "nothing", body: `{}`, notice: "e2b_internet", network: "policy",
			secrets: []string{"MINE"}, shown: map[string]any{"denyOut": []any{"0.0.0.0/0"}},
		},
		{name: "nothing-with-internet", body: `{}`, internet: true, notice: "dialled by number", network: "on", secrets: []string{"MINE"}, shown: map[string]any{}},
		{
			name: "a-range", body: `{"denyOut":["192.0.2.0/24"]}`, internet: true, notice: "dialled by number", network: "on",
			secrets: []string{"MINE"}, shown: map[string]any{"denyOut": []any{"192.0.2.0/24"}},
		},
		{
			name: "closed", body: `{"allow_internet_access":false}`, internet: true, network: "policy",
			secrets: []string{"MINE"}, shown: map[string]any{"denyOut": []any{"0.0.0.0/0"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.internet(tt.internet)
			rec := r.json(t, "PUT", path+"/network", tt.body, 204, nil)
			if n := rec.Header().Get("Carboy-Notice"); !strings.Contains(n, tt.notice) || (n == "") != (tt.notice == "") || strings.Contains(n, "hunter") {
				t.Errorf("notice %q, want %q", n, tt.notice)
			}
			var got struct{ Network map[string]any }
			if rec := r.json(t, "GET", path, "", 200, &got); strings.Contains(rec.Body.String(), "hunter") {
				t.Errorf("a value is told: %s", rec.Body)
			}
			tt.shown["allowPublicTraffic"] = true
			if diff := cmp.Diff(tt.shown, got.Network); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]any{tt.network, tt.secrets}, []any{r.instances[1].Spec.Network, r.instances[1].Spec.Secrets}); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
	if got := r.changes[1].Values["E2B_A_EXAMPLE_X_KEY"]; got != "hunter2" {
		t.Errorf("the header's value is %q", got)
	}
	n := len(r.changes)
	for body, want := range map[string]int{
		``: 400, `{"allowIn":[]}`: 400, `{"allowOut":["a.example"],"egressProxy":{"address":"x:1"}}`: 501, `{"denyOut":["a.example"]}`: 400,
	} {
		r.json(t, "PUT", path+"/network", body, want, nil)
	}
	r.caller.PrivateNetwork = false
	r.json(t, "PUT", path+"/network", `{"allowOut":["169.254.169.254"]}`, 403, nil)
	r.caller.Manage = false
	r.json(t, "PUT", path+"/network", `{}`, 403, nil)
	if len(r.changes) != n {
		t.Error("what was refused was done")
	}
}
