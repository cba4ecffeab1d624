package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carboy-sandbox/carboy/internal/policy"
)

// expressions is a rule about so many paths, each by an expression of its own.
func expressions(n int, format string) (out []policy.Rule) {
	for i := 0; i < n; i += 60 {
		var m policy.Match
		for j := i; j < min(i+60, n); j++ {
			m.Paths = append(m.Paths, policy.Value{Type: "regex", Value: fmt.Sprintf(format, j)})
		}
		out = append(out, matching("", m))
	}
	return out
}

// TestBounds: what is too much is told by its place, how much it is, and what to do, and
// nothing else is told of such a policy.
func TestBounds(t *testing.T) {
	const split = " (split it over several rules, or use a prefix or *.example.com)"
	rule := func(change func(*policy.Rule)) policy.Policy {
		r := hosts("a.example")
		change(&r)
		return rules(hosts("*"), r) // the first of which is a mistake of another kind
	}
	match := func(change func(*policy.Match)) policy.Policy {
		return rule(func(r *policy.Rule) {
			r.Matches = []policy.Match{{Methods: []string{"GET"}}}
			change(&r.Matches[0])
		})
	}
	long := strings.Repeat("a", 1025)
	tests := []struct {
		name   string
		policy policy.Policy
		want   string
	}{
		{"presets", policy.Policy{Presets: slices.Repeat([]string{"pypi"}, 101)}, "presets: 101 of them: 100 are the most"},
		{"services", policy.Policy{Services: slices.Repeat([]string{"a"}, 33)}, "services: 33 of them: 32 are the most"},
		{"dns types", policy.Policy{DNS: policy.DNS{Types: slices.Repeat([]string{"TXT"}, 17)}}, "dns.types: 17 of them: 16 are the most"},
		{"dns upstreams", policy.Policy{DNS: policy.DNS{Upstreams: slices.Repeat([]string{"1.1.1.1"}, 17)}}, "dns.upstreams: 17 of them: 16 are the most"},
		{"rules", rules(slices.Repeat([]policy.Rule{hosts("a.example")}, 1001)...), "rules: 1001 of them: 1000 are the most"},
		{"rules with a preset's", policy.Policy{Presets: []string{"pypi"}, Rules: slices.Repeat([]policy.Rule{hosts("a.example")}, 1000)}, "rules: 1002 of them: 1000 are the most"},
		{"hosts", rule(func(r *policy.Rule) { r.Hosts = slices.Repeat(r.Hosts, 1001) }), "rules[1].hosts: 1001 of them: 1000 are the most" + split},
		{"addresses", rule(func(r *policy.Rule) { r.Addresses = slices.Repeat(r.Hosts, 1001) }), "rules[1].addresses: 1001 of them: 1000 are the most" + split},
		{"ports", rule(func(r *policy.Rule) { r.Ports = slices.Repeat([]string{"1"}, 65) }), "rules[1].ports: 65 of them: 64 are the most" + split},
		{"secrets", rule(func(r *policy.Rule) { r.Secrets = make([]policy.Secret, 17) }), "rules[1].secrets: 17 of them: 16 are the most" + split},
		{"matches", rule(func(r *policy.Rule) { r.Matches = make([]policy.Match, 65) }), "rules[1].matches: 65 of them: 64 are the most" + split},
		{"methods", match(func(m *policy.Match) { m.Methods = slices.Repeat(m.Methods, 65) }), "rules[1].matches[0].methods: 65 of them: 64 are the most" + split},
		{"paths", match(func(m *policy.Match) { m.Paths = make([]policy.Value, 65) }), "rules[1].matches[0].paths: 65 of them: 64 are the most" + split},
		{"headers", match(func(m *policy.Match) { m.Headers = make([]policy.Field, 17) }), "rules[1].matches[0].headers: 17 of them: 16 are the most" + split},
		{"query", match(func(m *policy.Match) { m.Query = make([]policy.Field, 17) }), "rules[1].matches[0].query: 17 of them: 16 are the most" + split},
		{
			"path", match(func(m *policy.Match) { m.Paths = []policy.Value{{Value: long[1:]}, {Value: long}} }),
			"rules[1].matches[0].paths[1].value: 1025 bytes: 1024 are the most (a prefix of it)",
		},
		{
			"header", match(func(m *policy.Match) { m.Headers = []policy.Field{{Name: "X-A", Type: "regex", Value: long}} }),
			"rules[1].matches[0].headers[0].value: 1025 bytes: 1024 are the most (a prefix of it)",
		},
		{"roots", rule(func(r *policy.Rule) { r.Roots = strings.Repeat("x", 1<<18+1) }), "rules[1].roots: 262145 bytes of certificates: 262144 are the most (the authority's own alone)"},
		{"entries", rules(slices.Repeat([]policy.Rule{hosts(slices.Repeat([]string{"a.example"}, 100)...)}, 201)...), "rules: hosts, addresses, ports and values: 20100 of them: 20000 are the most"},
		{
			"bytes", rules(slices.Repeat([]policy.Rule{{Hosts: []string{"a.example"}, Roots: strings.Repeat("x", 1<<18)}}, 4)...),
			"rules: 1048612 bytes of hosts, values, certificates and other texts: 1048576 are the most (leave out what is there twice, or make it prefixes)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Compile(tt.policy, nil)
			if err == nil {
				t.Fatal("it was compiled")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestExpressionBounds: expressions are bounded by what they become, all together.
func TestExpressionBounds(t *testing.T) {
	const hint = " (repeat it fewer times, as [a-z]+ where the length is of no matter, or say it as a prefix or exactly)"
	tests := []struct {
		name  string
		rules []policy.Rule
		want  string
	}{
		{"repeated", expressions(18_000, "/%d/x{1,900}"), `rules[0].matches[0].paths[10].value: the policy's regular expressions come to a size of more than 100000, of which "/10/x{1,900}" alone has 1827` + hint},
		{
			"one",
			[]policy.Rule{matching("", path("regex", "(?:"+strings.Repeat("a?", 500)+"){250}"))},
			`rules[0].matches[0].paths[0].value: the policy's regular expressions come to a size of more than 100000, of which "(?:` + strings.Repeat("a?", 38) + `a"... alone has 251021` + hint,
		},
		{"tables", expressions(600, `/%d\p{L}`), `rules[1].matches[0].paths[40].value: the policy's regular expressions come to a size of more than 100000, of which "/100\\p{L}" alone has 357` + hint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Compile(rules(tt.rules...), nil)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestExpressionsThatFit: what people write is far from the bound, and what is there more
// than once counts once.
func TestExpressionsThatFit(t *testing.T) {
	for name, list := range map[string][]policy.Rule{
		"hundreds":   expressions(600, `/repos/[A-Za-z0-9_.-]+/%d/(?:pulls|issues|commits)/[0-9a-f]{40}`),
		"long names": expressions(150, `/%d/[A-Za-z0-9_-]{1,255}`),
		"the same":   slices.Repeat([]policy.Rule{matching("", path("regex", "/x{1,900}"))}, 1000),
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, rules(list...))
			if v := s.Request(ask(t, "GET", "https://a.example/nothing/that/they/say", server)); v.Allowed() {
				t.Errorf("got %+v", v)
			}
			if _, err := s.Test("GET https://a.example/"+strings.Repeat("x", 500), netip.Addr{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatIsTriedIsBounded: who tries a request against a policy has it held against all of
// its expressions.
func TestWhatIsTriedIsBounded(t *testing.T) {
	long := "GET https://a.example/" + strings.Repeat("a", 8000)
	small := compile(t, rules(matching("", path("regex", "/a{1,900}"))))
	if steps, err := small.Test(long, netip.Addr{}); err != nil || len(steps) == 0 {
		t.Errorf("got %v, %v", steps, err)
	}
	large := compile(t, rules(expressions(50, "/(?:%da?){1,400}")...))
	_, err := large.Test(long, netip.Addr{})
	if err == nil || !strings.Contains(err.Error(), "8022 bytes: of a policy with such expressions ") || !strings.HasSuffix(err.Error(), " are the most (a shorter path)") {
		t.Errorf("got %v", err)
	}
}
