package e2b_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/carboy-sandbox/carboy/internal/e2b"
	"github.com/carboy-sandbox/carboy/internal/egress/secret"
	"github.com/carboy-sandbox/carboy/internal/sandbox"
	"github.com/carboy-sandbox/carboy/internal/tenant/team"
)

// vault has two names of secrets, and no values.
type vault struct{}

func (vault) NamedSecrets(_ context.Context, owner string) ([]team.Secret, error) {
	if owner != "key:a" {
		return nil, nil
	}
	return []team.Secret{{ID: "sec_1", Name: "openai-key", Kept: "E2B_SEC_ONE"}, {ID: "sec_2", Name: "user", Kept: "E2B_SEC_TWO"}}, nil
}

func (vault) PutNamedSecret(context.Context, team.Secret) error  { return nil }
func (vault) DeleteNamedSecret(context.Context, string) error    { return nil }
func (vault) Remove(context.Context, string, string, bool) error { return nil }
func (vault) Put(context.Context, string, string, secret.Source) (secret.Info, error) {
	return secret.Info{}, nil
}

func (vault) Rotate(context.Context, string, string, *secret.Source) (secret.Info, error) {
	return secret.Info{}, nil
}

// A header that has the place of a secret has the gate put the owner's secret
// in; a place that nothing would fill is refused.
func TestPlacesOfSecrets(t *testing.T) {
	for _, tt := range []struct {
		name, owner, body string
		status            int
		secrets           []string
	}{
		{"bearer", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"Authorization":"Bearer ${e2b.secrets.openai-key}"}}}]}}`, 201, []string{"E2B_SEC_ONE"}},
		{"alone", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"${e2b.secrets.OpenAI-key}"}}}]}}`, 201, []string{"E2B_SEC_ONE"}},
		{"by-id", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"${e2b.secrets.sec_2}"}}}]}}`, 201, []string{"E2B_SEC_TWO"}},
		{
			"two-hosts", "key:a", `"network":{"rules":{"a.example":[{"transform":{"headers":{"X-Key":"${e2b.secrets.user}"}}}],
				"b.example":[{"transform":{"headers":{"X-Key":"${e2b.secrets.user}","X-Plain":"0123456789"}}}]}}`, 201,
			[]string{"E2B_B_EXAMPLE_X_PLAIN", "E2B_SEC_TWO"},
		},
		{"another-owner", "key:b", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"${e2b.secrets.openai-key}"}}}]}}`, 400, nil},
		{"unknown", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"${e2b.secrets.none}"}}}]}}`, 400, nil},
		{"inside", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"a ${e2b.secrets.user}"}}}]}}`, 501, nil},
		{"twice", "key:a", `"network":{"rules":{"api.example":[{"transform":{"headers":{"X-Api-Key":"${e2b.secrets.user}${e2b.secrets.user}"}}}]}}`, 501, nil},
		{"variable", "key:a", `"envVars":{"KEY":"${e2b.secrets.user}"}`, 501, nil},
		{"plain", "key:a", `"envVars":{"KEY":"${e2b.other}"}`, 201, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{now: epoch}
			h := e2b.New(e2b.Options{
				Manager: f, Internet: true, Teams: e2b.Teams{Secrets: vault{}, Values: vault{}},
				Caller: func(*http.Request) e2b.Caller {
					return e2b.Caller{Caller: sandbox.Caller{Owner: tt.owner}, Manage: true, HostImage: true}
				},
			})
			r := httptest.NewRequest("POST", "/sandboxes", strings.NewReader(`{"templateID":"base","allow_internet_access":true,`+tt.body+`}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status {
				t.Fatalf("create = %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if tt.status != 201 {
				return
			}
			spec := f.specs[0]
			slices.Sort(spec.Secrets)
			if !slices.Equal(spec.Secrets, tt.secrets) {
				t.Errorf("secrets = %q, want %q", spec.Secrets, tt.secrets)
			}
			var named []string
			if spec.Policy != nil {
				for _, rule := range spec.Policy.Rules {
					for _, s := range rule.Secrets {
						named = append(named, s.Name)
					}
				}
			}
			slices.Sort(named)
			if named = slices.Compact(named); !slices.Equal(named, tt.secrets) {
				t.Errorf("the policy names %q, want %q", named, tt.secrets)
			}
			for name, value := range f.values[0] {
				if strings.Contains(value, "e2b.secrets") {
					t.Errorf("%s is the place itself: %s", name, value)
				}
			}
		})
	}
}
