package e2b

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// compile is p, ready to decide.
func compile(t *testing.T, p policy.Policy, secrets ...string) *policy.Set {
	t.Helper()
	s, err := policy.Compile(p, secrets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// last is the answer to what Test was asked last.
func last(t *testing.T, s *policy.Set, what string) policy.Verdict {
	t.Helper()
	steps, err := s.Test(what, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	return steps[len(steps)-1].Verdict
}

func TestFromEgress(t *testing.T) {
	off := false
	tests := []struct {
		name    string
		network egress
		allowed []string
		refused []string
	}{
		{
			"nothing-said",
			egress{},
			[]string{"https://www.example.com/", "tcp://git.example.com:22"},
			[]string{"https://10.0.0.1/", "tcp://169.254.169.254:80"},
		},
		{
			"no-internet",
			egress{AllowInternetAccess: &off},
			nil,
			[]string{"https://www.example.com/", "dns:www.example.com", "tcp://1.1.1.1:443"},
		},
		{
			"list",
			egress{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"1.1.1.1", "9.9.9.0/24", "api.example.com", "*.example.org"}},
			[]string{"https://1.1.1.1/", "tcp://9.9.9.9:22", "udp://9.9.9.9:123", "https://api.example.com/x", "http://a.example.org/", "POST https://a.b.example.org/"},
			[]string{"https://8.8.8.8/", "tcp://1.1.1.1:53", "udp://1.1.1.1:443", "https://example.org/", "https://evil.example/", "tcp://api.example.com:22"},
		},
		{
			"no-internet-but",
			egress{AllowInternetAccess: &off, AllowOut: []string{"api.example.com"}},
			[]string{"https://api.example.com/"},
			[]string{"https://www.example.com/"},
		},
		{
			"some-denied",
			egress{DenyOut: []string{"93.184.0.0/16"}, AllowOut: []string{"93.184.216.34"}},
			[]string{"https://www.example.com/", "tcp://93.184.216.34:443"},
			[]string{"tcp://93.184.216.35:443", "tcp://93.184.0.1:443"},
		},
		{
			"allowed-counts-more",
			egress{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"0.0.0.0/0"}},
			[]string{"https://www.example.com/"},
			[]string{"tcp://10.0.0.1:443"},
		},
		{
			"private",
			egress{DenyOut: []string{"0.0.0.0/0"}, AllowOut: []string{"10.1.0.0/16"}},
			[]string{"tcp://10.1.2.3:5432"},
			[]string{"tcp://10.2.0.1:5432"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _, err := fromEgress(tt.network)
			if err != nil {
				t.Fatal(err)
			}
			s := compile(t, p)
			for _, what := range tt.allowed {
				if v := last(t, s, what); !v.Allowed() {
					t.Errorf("%s: %+v", what, v)
				}
			}
			for _, what := range tt.refused {
				if v := last(t, s, what); v.Allowed() {
					t.Errorf("%s: %+v", what, v)
				}
			}
		})
	}
}

// TestFromEgressTakesOut holds what remains of a denied range against the
// ranges that were taken out of it, address by address.
func TestFromEgressTakesOut(t *testing.T) {
	allowed := []string{"93.184.216.8/30", "93.184.216.13", "93.184.216.128/25"}
	p, _, err := fromEgress(egress{DenyOut: []string{"93.184.216.0/24"}, AllowOut: allowed})
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, p)
	for i := range 256 {
		a := netip.AddrFrom4([4]byte{93, 184, 216, byte(i)})
		want := i >= 8 && i < 12 || i == 13 || i >= 128
		if got := s.Address(a).Allowed(); got != want {
			t.Errorf("%s: got %t", a, got)
		}
	}
}

// TestFromEgressSameNames: hosts whose secrets would have one name must not get
// each other's.
func TestFromEgressSameNames(t *testing.T) {
	put := func(header, value string) []headerRule {
		return []headerRule{{Transform: &transform{Headers: map[string]string{header: value}}}}
	}
	for _, tt := range []struct {
		name  string
		rules map[string][]headerRule
		ok    bool
	}{
		{"dash", map[string][]headerRule{"a-b.example": put("X-Key", "one-value"), "a.b.example": put("X-Key", "other-value")}, false},
		{"border", map[string][]headerRule{"a.b": put("C-X", "one-value"), "a.b.c": put("X", "other-value")}, false},
		{"long", map[string][]headerRule{strings.Repeat("a.", 70) + "b": put("X-Key", "one-value"), strings.Repeat("a.", 70) + "c": put("X-Key", "other-value")}, false},
		{"one-value", map[string][]headerRule{"a-b.example": put("X-Key", "one-value"), "a.b.example": put("X-Key", "one-value")}, true},
		{"other-names", map[string][]headerRule{"a.example": put("X-Key", "one-value"), "b.example": put("X-Key", "other-value")}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := egress{Rules: tt.rules}
			if _, _, err := fromEgress(n); (err == nil) != tt.ok {
				t.Errorf("%v; values %d of %d", err, len(n.secrets()), len(tt.rules))
			}
		})
	}
}

func TestFromEgressHeaders(t *testing.T) {
	var n egress
	err := json.Unmarshal([]byte(`{
		"denyOut": ["0.0.0.0/0"], "allowOut": ["api.example.com", "*.example.org"],
		"rules": {
			"api.example.com": [{"transform": {"headers": {"authorization": "Bearer first"}}}, {"transform": {"headers": {"authorization": "Bearer s3cret", "X-Team": "blue"}}}, {}],
			"x.example.org": [{"transform": {"headers": {"Authorization": "Basic Ym90OnMzY3JldA=="}}}],
			"other.example": [{"transform": {"headers": {"X-Key": "s3cret"}}}]
		}}`), &n)
	if err != nil {
		t.Fatal(err)
	}
	p, notes, err := fromEgress(n)
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.Secret{
		{Name: "E2B_API_EXAMPLE_COM_X_TEAM", Header: "X-Team"},
		{Name: "E2B_API_EXAMPLE_COM_AUTHORIZATION", Header: "authorization", Scheme: "Bearer"},
	}
	if diff := cmp.Diff(want, p.Rules[1].Secrets); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]policy.Secret{{Name: "E2B_X_EXAMPLE_ORG_AUTHORIZATION", Header: "Authorization", Scheme: "Basic", Username: "bot"}}, p.Rules[2].Secrets); diff != "" {
		t.Error(diff)
	}
	wantValues := map[string]string{
		"E2B_API_EXAMPLE_COM_X_TEAM": "blue", "E2B_API_EXAMPLE_COM_AUTHORIZATION": "s3cret",
		"E2B_X_EXAMPLE_ORG_AUTHORIZATION": "s3cret", "E2B_OTHER_EXAMPLE_X_KEY": "s3cret",
	}
	if diff := cmp.Diff(wantValues, n.secrets()); diff != "" {
		t.Error(diff)
	}
	if text := fmt.Sprint(p, notes); strings.Contains(text, "s3cret") {
		t.Errorf("a value in %s", text)
	}
	if !strings.Contains(fmt.Sprint(notes), `rules["other.example"]: allowOut does not have it`) {
		t.Errorf("notes: %v", notes)
	}
	s := compile(t, p, "E2B_API_EXAMPLE_COM_X_TEAM", "E2B_API_EXAMPLE_COM_AUTHORIZATION", "E2B_X_EXAMPLE_ORG_AUTHORIZATION")
	if v := last(t, s, "https://api.example.com/"); v.Route == nil || len(v.Route.Secrets) != 2 {
		t.Errorf("got %+v", v)
	}
	if v := last(t, s, "https://y.example.org/"); v.Route != nil {
		t.Errorf("got %+v", v)
	}
}

func TestFromEgressRefuses(t *testing.T) {
	all := []string{"0.0.0.0/0"}
	header := func(host, name, value string) egress {
		return egress{DenyOut: all, AllowOut: []string{"api.example.com"}, Rules: map[string][]headerRule{
			host: {{Transform: &transform{Headers: map[string]string{name: value}}}},
		}}
	}
	tests := []struct {
		name    string
		network egress
		want    string
	}{
		{"name-denied", egress{DenyOut: []string{"evil.example"}}, "names can't be denied"},
		{"name-of-no-use", egress{AllowOut: []string{"api.example.com"}}, `add "0.0.0.0/0" to denyOut`},
		{"star", egress{DenyOut: all, AllowOut: []string{"*"}}, "names every host"},
		{"bits", egress{DenyOut: all, AllowOut: []string{"10.0.0.1/8"}}, "within 10.0.0.0/8"},
		{"proxy", egress{EgressProxy: &socksProxy{Address: "a:1", Password: "s3cret"}}, "no proxy"},
		{"scheme", header("api.example.com", "Authorization", "Digest s3cret"), "has a scheme"},
		{"basic", header("api.example.com", "Authorization", "Basic s3cret"), "no Basic credential"},
		{"newline", header("api.example.com", "X-Key", "s3cret\r\nX: y"), "no value that a header can have"},
		{"no-value", header("api.example.com", "X-Key", ""), "no value that a header can have"},
		{"header", header("api.example.com", "Host", "s3cret"), "no header that a secret can go to"},
		{"address", header("10.0.0.1", "X-Key", "s3cret"), "is an address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _, err := fromEgress(tt.network)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %+v, %v, want %q", p, err, tt.want)
			}
			if len(policy.Problems(err)) == 0 {
				t.Errorf("got %T", err)
			}
		})
	}
}
